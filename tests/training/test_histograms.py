"""Histograms and update ratios are those of the update, and leave the training as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback
from test_processes import DDP, finish
from test_resume import KillAt, long_run, train_loader
from torch import Tensor, nn
from toy_task import ToyTask, checkpoint, rows, toy_run, weights
from wandb_files import wandb_records

from triptych.training.engine.muon import Muon, MuonAdamW
from triptych.training.engine.optim import AdamW, OptimizerConfig, decay_groups
from triptych.training.loggers import Before, RunLogger
from triptych.training.run.settings import LogConfig, OptimConfig, RunConfig
from triptych.training.wandb_logger import BINS, WandbMetrics

EVERY = 2
LOGS = {"wandb": "offline", "log": LogConfig(histograms=EVERY)}
MATRICES = {"first.weight", "last.weight"}
NAMES = {*MATRICES, "first.bias", "last.bias"}
SHOWN = {f"{kind}/{name}" for kind in ("gradients", "parameters") for name in NAMES}


class KeepsUpdates(RunLogger):
    """Keep what wandb would show of updates."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, dict[str, Any]] = {}
        target = SimpleNamespace(log=lambda row: self.rows.update({row["step"]: row}))
        self.wandb = WandbMetrics(target)

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        pass

    def log_update(self, before: Before, model: nn.Module, step: int) -> None:
        self.wandb.log_update(before, model, step)


class Updates(Callback):
    """Weights before and after each update, and its gradients after clipping."""

    def __init__(self) -> None:
        self.weights: list[dict[str, Tensor]] = []
        self.gradients: dict[int, dict[str, Tensor]] = {}
        self._step = -1

    def on_train_start(self, trainer: Any, task: Any) -> None:
        self._step, self.weights = trainer.global_step, [weights(task.model)]

    def on_train_batch_end(self, trainer: Any, task: Any, *_: Any) -> None:
        if trainer.global_step != self._step:
            self._step = trainer.global_step
            self.weights.append(weights(task.model))
            named = task.model.named_parameters()
            self.gradients[self._step] = {name: value.grad.clone() for name, value in named}


def assert_holds(found: Any, values: Tensor) -> None:
    counts, edges = np.array(found.histogram), np.array(found.bins)
    array = values.numpy()
    assert counts.sum() == values.numel()
    assert (edges[0], edges[-1]) == pytest.approx((array.min(), array.max()), rel=1e-6)
    assert len(edges) == len(counts) + 1
    # An edge may fall on either side of a value by rounding.
    assert np.abs(np.cumsum(counts) - np.cumsum(np.histogram(array, edges)[0])).max() <= 1


@dataclass(frozen=True)
class FirstByMuon(Muon):
    """Muon for the first matrix of the toy, which has no block."""

    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        first, *others = module.parameters()
        groups = decay_groups(others, self.weight_decay)
        arguments = self.arguments(module, learning_rate)
        return MuonAdamW([first], groups, weight_decay=self.weight_decay, **arguments)


def task_of(optimizer: OptimizerConfig | None = None, **optim: Any) -> ToyTask:
    return ToyTask(OptimConfig(optimizer or AdamW(weight_decay=0.1), 0.01, **optim))


VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "clipped": ({}, {"gradient_clip_val": 0.01}),
    "accumulation": ({}, {"accumulate_grad_batches": 3}),
    "average": ({"ema_decay": 0.9}, {}),
    "muon": ({"optimizer": FirstByMuon(weight_decay=0.1)}, {}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_update_is_shown_and_the_training_is_the_same(variant: str, tmp_path: Path) -> None:
    optim, trainer = VARIANTS[variant]
    keeps, updates, without = KeepsUpdates(), Updates(), Updates()
    toy_run(tmp_path / "off", task_of(**optim), callbacks=[without], **trainer)
    more = {"callbacks": [updates], "logger": keeps, **trainer}
    toy_run(tmp_path / "on", task_of(**optim), run=LOGS, **more)
    assert len(updates.weights) == len(without.weights) == 7
    for one, other in zip(updates.weights, without.weights, strict=True):
        assert all(torch.equal(value, other[name]) for name, value in one.items())
    saved = (checkpoint(tmp_path / name)["state_dict"] for name in ("on", "off"))
    one, other = saved
    assert all(torch.equal(value, other[name]) for name, value in one.items())

    assert [*keeps.rows] == [2, 4, 6]
    for step, row in keeps.rows.items():
        assert row.keys() == {"step", *SHOWN, *(f"update_ratio/{name}" for name in MATRICES)}
        before, after = updates.weights[step - 1], updates.weights[step]
        for name in MATRICES:
            ratio = (after[name] - before[name]).norm() / before[name].norm()
            assert row[f"update_ratio/{name}"] == pytest.approx(float(ratio), rel=1e-6)
        for name in NAMES:
            assert_holds(row[f"parameters/{name}"], after[name])
            gradient = updates.gradients[step][name]
            if variant == "clipped":
                edges = row[f"gradients/{name}"].bins
                assert edges[-1] - edges[0] > 2 * float(gradient.max() - gradient.min())
            else:
                assert_holds(row[f"gradients/{name}"], gradient)


def test_a_resumed_run_with_them_is_the_uncut_run_without(tmp_path: Path) -> None:
    uncut = long_run(tmp_path / "uncut")
    long_run(tmp_path / "cut", run=LOGS, callbacks=[KillAt(6)])
    keeps = KeepsUpdates()
    resumed = long_run(tmp_path / "cut", run=LOGS, resume=True, logger=keeps)
    assert [*keeps.rows] == [8, 10, 12]
    for name, value in weights(uncut).items():
        assert torch.equal(value, weights(resumed)[name]), name


class Copies(Callback):
    """Updates at which the weights before them were kept."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_train_batch_end(self, trainer: Any, task: Any, *_: Any) -> None:
        if task._before_update:
            self.steps.append(trainer.global_step)


def test_only_updates_that_are_shown_cost_something(tmp_path: Path) -> None:
    off, on = Copies(), Copies()
    toy_run(tmp_path / "off", callbacks=[off])
    accumulated = {"loader": train_loader(), "accumulate_grad_batches": 2}
    toy_run(tmp_path / "on", run=LOGS, callbacks=[on], **accumulated)
    assert (off.steps, on.steps) == ([], [2, 4, 6])


def test_wandb_has_them_and_metrics_csv_does_not(tmp_path: Path) -> None:
    keeps, folder = KeepsUpdates(), tmp_path / "toy"
    toy_run(folder, run=LOGS, max_steps=4, logger=keeps)
    recorded, _ = wandb_records(folder)
    for name in SHOWN:
        rows_of_name = {row["step"]: row[name] for row in recorded if name in row}
        assert [*rows_of_name] == [2, 4]
        for step, there in rows_of_name.items():
            shown = keeps.rows[step][name]
            assert there["_type"] == "histogram"
            assert there["values"] == shown.histogram
            assert there["bins"] == shown.bins
    for name in (f"update_ratio/{each}" for each in MATRICES):
        expected = {step: row[name] for step, row in keeps.rows.items()}
        assert {row["step"]: row[name] for row in recorded if name in row} == expected
    assert not [name for name in rows(folder)[0] if "first" in name and "norm" not in name]


@pytest.mark.slow
def test_of_two_processes_the_first_alone_shows_the_shared_update(tmp_path: Path) -> None:
    trainer = {**DDP, "max_steps": 4, "val_check_interval": 2}
    flags = {"on": ["--histograms"], "off": []}
    done = [finish(tmp_path / name, trainer, *flags[name]) for name in flags]
    assert [each.returncode for each in done] == [0, 0], done
    one, other = (checkpoint(tmp_path / name)["state_dict"] for name in ("on", "off"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    recorded, _ = wandb_records(tmp_path / "on")
    name = "update_ratio/first.weight"
    assert [row["step"] for row in recorded if name in row] == [2, 4]


@pytest.mark.parametrize(
    ("values", "edges", "counts"),
    [
        ([0.0, 0.0, 0.0], (-0.5, 0.5), {BINS // 2: 3}),
        ([float("nan"), float("inf"), 1.0, 3.0], (1.0, 3.0), {0: 1, BINS - 1: 1}),
        ([float("nan")], (0.0, 1.0), {}),
    ],
)
def test_equal_and_infinite_values_have_a_histogram(
    values: list[float], edges: tuple[float, float], counts: dict[int, int]
) -> None:
    model, keeps = nn.Linear(len(values), 1, bias=False, dtype=torch.bfloat16), KeepsUpdates()
    gradient = torch.tensor([values], dtype=torch.bfloat16)
    keeps.log_update({"weight": (model.weight.detach().clone(), gradient)}, model, 1)
    found = keeps.rows[1]["gradients/weight"]
    assert (found.bins[0], found.bins[-1]) == edges
    assert {bin: count for bin, count in enumerate(found.histogram) if count} == counts


def test_a_matrix_of_zeros_has_no_ratio() -> None:
    model, keeps = nn.Linear(2, 2), KeepsUpdates()
    zeros = torch.zeros(2, 2)
    keeps.log_update({"weight": (zeros, zeros)}, model, 1)
    assert keeps.rows[1].keys() == {"step", "gradients/weight", "parameters/weight"}


def test_nowhere_to_show_them_is_refused() -> None:
    log = LogConfig(histograms=10)
    with pytest.raises(ValueError, match=r"log\.histograms needs wandb"):
        RunConfig(wandb="off", log=log)
