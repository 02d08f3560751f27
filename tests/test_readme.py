"""What the README shows works. tests/docs/test_pages.py checks its links and options."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from triptych import pretrained

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
BLOCKS = BLOCK.findall(README)


# Commands with models that are shipped, each with the comment below it: what it prints or makes.
SHOWN = re.findall(r"^(\S.*pretrained:[a-z0-9].*)\n# (.*)$", "".join(b for _, b in BLOCKS), re.M)


def test_a_command_is_shown_for_each_domain_of_the_models_shipped() -> None:
    def domains(names: list[str]) -> set[str]:
        facts = [pretrained.read_metadata(pretrained.find(name)) for name in names]
        return {found["triptych"]["domain"] for found in facts}

    shown = re.findall(r"pretrained:([\w.-]+)", " ".join(command for command, _ in SHOWN))
    assert domains(shown) == domains(pretrained.names())


@pytest.mark.slow
@pytest.mark.parametrize(("command", "promised"), SHOWN, ids=[c[:60] for c, _ in SHOWN])
def test_a_command_with_a_shipped_model_does_what_is_promised(
    command: str, promised: str, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    starter = tmp_path / "bin/triptych"  # whether or not the environment is activated
    starter.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m triptych "$@"\n')
    starter.chmod(0o755)
    (tmp_path / "empty").mkdir()
    environment = {**os.environ, "PATH": f"{starter.parent}:{os.environ['PATH']}"}
    environment.pop("CI", None)  # there pyfluidsynth tells on stdout which library it found
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=tmp_path / "empty", env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if done.stdout:
        assert done.stdout == f"{promised}\n"
    else:
        for path in promised.split():
            assert (tmp_path / "empty" / path).stat().st_size > 100


def test_the_python_shown_compiles_and_names_what_exists() -> None:
    import triptych

    for kind, block in BLOCKS:
        if kind == "python":
            compile(block, "README.md", "exec")
            for name in re.findall(r"triptych\.(\w+)\(", block):
                assert hasattr(triptych, name)
