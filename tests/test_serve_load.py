"""`scripts/serve_load` measures a server, and sees answers that are not the model's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/serve_load"


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("A girl sings.\n")
    for checkpoint, lines in (("pretrained:multi30k-en-de", "none"), ("none", "lines")):
        words = ["--checkpoint", checkpoint, "--lines", tmp_path / lines]
        done = subprocess.run(
            [sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False
        )
        assert (done.returncode, "none" in done.stderr.splitlines()[-1]) == (2, True)


@pytest.mark.slow
def test_every_answer_is_the_models_and_is_counted(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="FastAPI is not installed (extra serve)")
    (tmp_path / "lines").write_text("A man plays the guitar.\nTwo dogs run.\n\nA girl sings.\n")
    words = ["--checkpoint", "pretrained:multi30k-en-de", "--lines", tmp_path / "lines"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *words, "--clients", "2", "--seconds", "3", "--", "--beam", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [row] = [line for line in done.stdout.splitlines() if line.startswith("| 2 ")]
    clients, rate, *_, errors, others = row.strip("| ").split(" | ")
    assert (clients, errors, others) == ("2", "0", "0")
    assert float(rate) > 0
