"""`sample`, `translate` and `evaluate` in two processes on the CPU give the results of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from triptych.cli.main import main

pytestmark = pytest.mark.slow
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
LINES = (
    b"A man is riding a horse.\n\nTwo dogs run.\nA girl sings.\nThree women cook in a kitchen.\n"
)


def two_processes(
    *words: object, folder: Path, lines: bytes = b"", torchrun: bool = False
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *(TORCHRUN if torchrun else ()), "-m", "triptych", *map(str, words)],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, input=lines,
        capture_output=True, timeout=300,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, Any]:
    return {
        path.name: json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()
        for path in folder.iterdir()
    }


@pytest.mark.parametrize(
    ("torchrun", "words"),
    [
        (True, ("sample", "image", "--checkpoint", "pretrained:mnist", "--count", 3, "--seed", 4)),
        (False, ("sample", "music", "--checkpoint", "pretrained:jsb-chorales", "--count", 2,
         "--given", "tune.mid", "--keep", "soprano", "--particles", 4)),
    ],
    ids=["pictures", "harmonies"],
)  # fmt: skip
def test_samples_are_those_of_one_process(
    torchrun: bool, words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "tune.mid" in words:
        first = ("sample", "music", "--checkpoint", "pretrained:jsb-chorales", "--length", "12")
        assert main([*first, "--out", "made"]) == 0
        Path("made/piece-00.mid").rename("tune.mid")
    assert main([*map(str, words), "--out", "one"]) == 0
    done = two_processes(*words, "--out", "two", "--devices", 2, folder=tmp_path, torchrun=torchrun)
    assert done.returncode == 0, done.stderr.decode()
    assert contents(Path("two")) == contents(Path("one"))


def test_translations_come_in_order(tmp_path: Path) -> None:
    words = ["translate", "--checkpoint", "pretrained:multi30k-en-de", "--n_best", 2]
    words += ["--scores", "true"]
    found = [
        two_processes(*words, *more, folder=tmp_path, lines=LINES)
        for more in ((), ("--devices", 2), ("--devices", 2, "--batch_size", 1))
    ]
    assert [each.returncode for each in found] == [0, 0, 0], found
    assert found[0].stdout == found[1].stdout == found[2].stdout
    assert found[0].stdout.count(b"\n") == 10  # two for each line


@pytest.mark.parametrize("domain", ["music", "translation"])
def test_scores_are_those_of_one_process(domain: str, shared_data: Path, tmp_path: Path) -> None:
    checkpoint, data, more = {
        "music": ("jsb-chorales", "jsb-chorales", ("--statistics", 3, "--sample_length", 8)),
        "translation": ("multi30k-en-de", "multi30k", ("--beam", 2)),
    }[domain]
    words = ["evaluate", domain, "--checkpoint", f"pretrained:{checkpoint}", "--limit", 9]
    words += ["--data", shared_data / data, "--split", "validation", *more]
    assert main([*map(str, words), "--json", str(tmp_path / "1.json")]) == 0
    done = two_processes(*words, "--json", "2.json", "--devices", 2, folder=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    one, two = (json.loads((tmp_path / f"{n}.json").read_text()) for n in (1, 2))
    assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-6)
    for result in (one, two):
        result["details"].pop("sentences_per_second", None)
        del result["metrics"]
    assert two == one


@pytest.mark.parametrize(
    ("words", "lines", "torchrun", "said"),
    [
        (("translate",), b"fine\n\xff\xfe\n", False, b"line 2"),
        (("translate",), LINES, True, b"torchrun has started 2 processes; expected --devices 2"),
        (("translate", "--devices", 3), LINES, True, b"the launcher has started 2 processes"),
        (("translate", "--devices", 2, "--device", "mps:0"), b"", False, b"device is mps:0"),
    ],
    ids=["a line that is no text", "--devices is missing", "other number", "device by number"],
)
def test_a_refusal_ends_all_processes(
    words: tuple[object, ...], lines: bytes, torchrun: bool, said: bytes, tmp_path: Path
) -> None:
    words = (*words, "--checkpoint", "pretrained:multi30k-en-de")
    if b"\xff" in lines:
        words = (*words, "--devices", 2)
    done = two_processes(*words, folder=tmp_path, lines=lines, torchrun=torchrun)
    assert done.returncode == (1 if torchrun else 2), done.stderr.decode()
    assert said in done.stderr
    if not torchrun:
        assert b"Traceback" not in done.stderr
