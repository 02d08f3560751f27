"""Scripts that a bare Python starts go on in .venv, or say in a sentence what to run first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CURVE = {
    "trained_length": 32,
    "length": 32,
    "buckets": [{"first": 0, "last": 31, "tokens": 1, "nats_per_token": 1.0}],
    "metrics": {"nats_per_token_within": 1.0},
}
CALLS = {
    "bench": (["--tiny"], "torch"),
    "length_plot": (["a.json", "--out", "a.png"], "matplotlib"),
    "reproduce": (["--list"], "yaml"),  # needs no torch
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The scripts as in a fresh clone, without .venv; a set-up that only says that it ran."""
    shutil.copytree(ROOT / "scripts", tmp_path / "clone/scripts")
    setup(tmp_path / "clone", "exit 7")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/a.json").write_text(json.dumps(CURVE))
    return tmp_path / "clone"


def setup(clone: Path, content: str) -> None:
    (clone / "scripts/setup").write_text(f"#!/bin/sh\necho set up $1\n{content}\n")


def call(clone: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Start a script from another folder with a Python that has no packages at all."""
    command = [sys.executable, "-S", "../clone/scripts/" + script, *CALLS[script][0]]
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=clone.parent / "here", env=outside
    )


@pytest.mark.parametrize("script", CALLS)
def test_without_the_environment_one_sentence_says_what_to_run(clone: Path, script: str) -> None:
    done = call(clone, script)
    if script == "reproduce":  # sets up by itself
        assert (done.returncode, done.stdout, done.stderr) == (7, "set up demo\n", "")
        setup(clone, "exit 0")
        done = call(clone, script)
    assert done.returncode == 2
    says = f"{script}: error: {CALLS[script][1]} is not installed here; run scripts/setup first"
    assert done.stderr.splitlines()[-1] == says
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("script", CALLS)
def test_with_it_the_script_begins_again_there(clone: Path, script: str) -> None:
    make = f'mkdir -p {clone}/.venv/bin; printf \'#!/bin/sh\\necho "$PWD" "$@"\\n\' > '
    make += f"{clone}/.venv/bin/python; chmod +x {clone}/.venv/bin/python"
    setup(clone, make)
    subprocess.run([clone / "scripts/setup", "demo"], check=True, capture_output=True)
    done = call(clone, script)
    assert (done.returncode, done.stderr) == (0, "")
    here = clone.parent / "here"
    again = " ".join([f"{here}", f"../clone/scripts/{script}", *CALLS[script][0]])
    assert done.stdout.splitlines()[-1] == again


def test_an_environment_that_lacks_it_too_does_not_go_round_in_circles(clone: Path) -> None:
    python = clone / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    (clone / ".venv/pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    done = call(clone, "bench")
    assert (done.returncode, "run scripts/setup first" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("word", "code", "said"), [("--help", 0, "Installs Triptych"), ("image", 2, "got 'image'")]
)
def test_the_demo_does_nothing_where_it_is_asked_something(
    clone: Path, word: str, code: int, said: str
) -> None:
    command = [clone / "scripts/demo", word]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in (done.stdout if code == 0 else done.stderr)
    assert "set up" not in done.stdout  # the set-up that would have ended with 7
    assert not (clone / "runs").exists()
