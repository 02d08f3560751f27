"""An optimiser and a schedule of the user's own are one class each, named by class path."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from triptych.training.run.checkpoint import read_checkpoint

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS))


@pytest.fixture
def words(tmp_path: Path, tiny_settings: Any) -> list[object]:
    """Command of a run with the own parts."""
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
