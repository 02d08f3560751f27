"""Classes of the user by class path: they train, and models open without those of their run."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from cli_page import document

import triptych
from triptych.training.run.checkpoint import read_checkpoint

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
    refused = run(*command, "--plugin", "own_part", plugins=True)
    assert "--plugin own_part is no module" in refused.stderr
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


@pytest.fixture
def words(tmp_path: Path, tiny_settings: Any, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Command of a run with the own parts."""
    monkeypatch.syspath_prepend(str(TESTS))
    content = tiny_settings("image")
    content["optim"] = {
        "learning_rate": 0.1,
        "optimizer": {"class_path": "own_parts.Momentum", "init_args": {"momentum": 0.5}},
        "schedule": {"class_path": "own_parts.Halving"},
    }
    content["run"]["directory"] = str(tmp_path / "runs")
    content["trainer"] |= {"log_every_n_steps": 1}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(content))
    return ["train", "image", "--config", path, "--run.wandb", "off"]


def test_a_cut_run_with_own_parts_goes_on_bit_for_bit(
    cli, words: list[object], tmp_path: Path
) -> None:
    assert cli(*words, "--run.name", "whole", "--trainer.max_steps", 6).code == 0
    assert cli(*words, "--trainer.max_steps", 3).code == 0
    answer = cli(*words, "--trainer.max_steps", 6, "--resume")
    assert answer.code == 0, answer.err
    whole, cut = (
        read_checkpoint(tmp_path / f"runs/{name}/checkpoints/last.ckpt")
        for name in ("whole", "run")
    )
    assert all(torch.equal(cut["state_dict"][name], w) for name, w in whole["state_dict"].items())
    (group,) = cut["optimizer_states"][0]["param_groups"]
    assert group["momentum"] == 0.5
    with (tmp_path / "runs/run/metrics.csv").open(encoding="utf-8") as file:
        found = [row["train/learning_rate"] for row in csv.DictReader(file) if row["train/loss"]]
    assert list(map(float, found)) == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025])


def test_their_settings_and_names_are_checked(refused, words: list[object]) -> None:
    for option, says in (
        ("--optim.optimizer.momentm", ["did you mean optim.optimizer.momentum?"]),
        ("--optim.schedule.every", ["optim.schedule.every must be a whole number, got x"]),
        ("--optim.schedule", ["x is not a kind of ScheduleConfig", "Cosine", "Halving"]),
    ):
        refused(*words, option, "x", says=says)
