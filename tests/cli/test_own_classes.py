"""Models of runs with classes of the user: what needs the file of the classes, and what not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_page import document

import triptych

TESTS = Path(__file__).resolve().parents[1]
ATTENTION = """
from dataclasses import dataclass
from triptych.core.attention.full import Full

@dataclass(frozen=True)
class Mine(Full):
    "Full attention of my own."
"""
OPENED = """
import sys, triptych
model = triptych.load(sys.argv[1], device="cpu")
model.sample(1, length=8)
entered = ("config", "task")
assert not {f"triptych.domains.music.{name}" for name in entered} & set(sys.modules)
assert not {"triptych.training.engine.optim", "triptych.training.run.settings"} & set(sys.modules)
from importlib.util import find_spec
if find_spec("gradio"):
    from triptych.tools.play.app import build
    build({"own": model})
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python in a process of its own; plugins: whether it finds the user's files."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "plugins").mkdir()
    shutil.copy(TESTS / "own_parts.py", folder / "plugins")
    (folder / "plugins" / "own_attention.py").write_text(ATTENTION)

    def python(*words: object, plugins: bool = False) -> subprocess.CompletedProcess[str]:
        path = [str(folder / "plugins")] if plugins else []
        path = [*path, str(Path(triptych.__file__).parents[1])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, *map(str, words)]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    def trained(name: str, **model: Any) -> None:
        settings = {
            "data": {
                "source": {"class_path": "own_parts.Scales"},
                "sequence_length": 64,
                "overlap": 0,
                "samples": 0,
            },
            "model": {"transformer": {"n_layers": 1, "d_model": 16, "n_heads": 2, **model}},
            "optim": {
                "optimizer": {"class_path": "own_parts.Momentum"},
                "schedule": {"class_path": "own_parts.Halving"},
            },
            "run": {"name": name, "wandb": "off"},
            "trainer": {"max_steps": 1, "accelerator": "cpu"},
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))
        found = python("-m", "triptych", "train", "music", "--config", f"{name}.yaml", plugins=True)
        assert found.returncode == 0, found.stderr

    trained("source")
    trained("attention", attention={"class_path": "own_attention.Mine"})
    return python


SOURCE, MINE = (f"runs/{name}/checkpoints/best.ckpt" for name in ("source", "attention"))


@pytest.mark.slow
def test_a_model_opens_without_the_classes_of_its_run(run: Run) -> None:
    """Its source, optimiser and schedule: nothing imports or reads them."""
    opened = run("-c", OPENED, SOURCE)
    assert opened.returncode == 0, opened.stderr
    for words in (
        ["sample", "music", "--checkpoint", SOURCE, "--out", "pieces", "--length", 8],
        ["attention", "music", "--checkpoint", SOURCE, "--out", "drawn", "--seconds", 2],
        ["export", SOURCE, "--format", "safetensors", "--out", "exported"],
        ["sample", "music", "--checkpoint", "exported", "--out", "again", "--length", 8],
    ):
        found = run("-m", "triptych", *words)
        assert found.returncode == 0, found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("source", [SOURCE, "exported"])
def test_only_its_evaluation_asks_for_the_source(run: Run, source: str) -> None:
    if source == "exported":
        run("-m", "triptych", "export", SOURCE, "--format", "safetensors", "--out", source)
    command = ["-m", "triptych", "evaluate", "music", "--checkpoint", source]
    for plugins in (False, True):
        refused = run(*command, plugins=plugins)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "own_parts.Scales is a class outside Triptych" in refused.stderr
        assert "--plugin own_parts" in refused.stderr
    scored = run(*command, "--plugin", "own_parts", plugins=True)
    assert scored.returncode == 0, scored.stderr
    assert "nats_per_token" in scored.stdout


@pytest.mark.slow
def test_attention_of_ones_own_is_part_of_the_model(run: Run) -> None:
    for words in (
        ["sample", "music", "--checkpoint", MINE, "--out", "mine", "--length", 8],
        ["attention", "music", "--checkpoint", MINE, "--out", "mine", "--seconds", 2],
        ["evaluate", "music", "--checkpoint", MINE],
        ["export", MINE, "--format", "safetensors", "--out", "mine-exported"],
    ):
        refused = run("-m", "triptych", *words, plugins=True)
        assert refused.returncode == 2, words
        assert "own_attention.Mine is a class outside Triptych" in refused.stderr
        assert "--plugin own_attention" in refused.stderr
        if words[0] != "evaluate":
            found = run("-m", "triptych", *words, "--plugin", "own_attention", plugins=True)
            assert found.returncode == 0, found.stderr


def test_every_command_that_opens_a_model_has_the_option() -> None:
    text = document()
    sections = [part for part in text.split("\n## triptych ") if "`--checkpoint`" in part]
    sections.append(next(part for part in text.split("\n## triptych ") if part[:6] == "export"))
    assert len(sections) >= 7
    for section in sections:
        for part in section.split("\n### "):
            opens = "`--checkpoint`" in part or part.startswith("export")
            assert not opens or "`--plugin`" in part, part.partition("\n")[0]
