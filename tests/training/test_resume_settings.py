"""A resumed run: which settings may change, and that those that may are in force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning import Callback
from toy_task import ToyTask, checkpoint, toy_run

from triptych.errors import Interrupted, UserError
from triptych.training.engine.optim import AdamW, InverseSqrt
from triptych.training.run.checkpoint import read_checkpoint
from triptych.training.run.resume import check_resumable
from triptych.training.run.settings import OptimConfig


class BrokenError(Exception):
    """What a broken machine would raise."""


class FailAfter(Callback):
    """Raise once the validation of an epoch is done and last.ckpt is written."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == self.epoch:
            raise BrokenError


class Look(Callback):
    """Remember the optimiser's settings and the patience at each step."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self.groups = [dict(group) for group in trainer.optimizers[0].param_groups]
        self.waiting = [
            (part.patience, part.wait_count)
            for part in trainer.callbacks
            if hasattr(part, "wait_count")
        ]


def go(folder: Path, *, resume: bool, optim: dict[str, Any] | None = None, **more: Any) -> ToyTask:
    run = {"early_stopping_patience": more.pop("patience", None)}
    settings = {"schedule": InverseSqrt(warmup_steps=3), **(optim or {"learning_rate": 0.01})}
    epochs = {"max_steps": -1, "val_check_interval": 1.0, "check_val_every_n_epoch": 1}
    task = ToyTask(OptimConfig(**settings))
    return toy_run(folder / "a", task, run=run, resume=resume, **epochs, **more)


def test_patience_after_a_run_that_was_cut_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    hopeless = {"learning_rate": 1e-12}  # no score is better than the first
    options = {"max_epochs": 9, "patience": 3, "optim": hopeless}
    whole = go(tmp_path / "whole", resume=False, **options)
    with pytest.raises(BrokenError):
        go(tmp_path / "cut", resume=False, callbacks=[FailAfter(1)], **options)
    rest = go(tmp_path / "cut", resume=True, **options)
    assert len(whole.seen) == 4 * 7, "one epoch for the best score, three to wait"
    assert len(rest.seen) == 2 * 7, "what it had waited was kept"


def test_the_patience_of_this_start_counts(tmp_path: Path) -> None:
    hopeless = {"learning_rate": 1e-12}
    go(tmp_path, resume=False, max_epochs=2, patience=2, optim=hopeless)
    look = Look()
    go(tmp_path, resume=True, max_epochs=4, patience=6, optim=hopeless, callbacks=[look])
    assert look.waiting == [(6, 2)]


def test_an_unknown_argument_of_the_trainer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="max_step"):
        go(tmp_path, resume=False, max_epochs=2, max_step=2)
    assert not any(tmp_path.iterdir())


def test_the_optimisers_settings_of_this_start_are_in_force(tmp_path: Path) -> None:
    go(tmp_path, resume=False, max_epochs=1, optim={"optimizer": AdamW(weight_decay=0.1)})
    look = Look()
    new = {"optimizer": AdamW(weight_decay=0.5, betas=(0.8, 0.9), epsilon=1e-6)}
    go(tmp_path, resume=True, max_epochs=2, optim=new, callbacks=[look])
    assert [group["weight_decay"] for group in look.groups] == [0.5, 0.0]
    assert {group["betas"] for group in look.groups} == {(0.8, 0.9)}
    assert {group["eps"] for group in look.groups} == {1e-6}


def test_fewer_epochs_than_were_run_are_refused(tmp_path: Path) -> None:
    go(tmp_path, resume=False, max_epochs=3)
    with pytest.raises(UserError, match=r"trainer\.max_epochs is 1"):
        go(tmp_path, resume=True, max_epochs=1)


def test_another_optimiser_is_refused_and_another_way_to_compute_is_not(tmp_path: Path) -> None:
    go(tmp_path, resume=False, max_epochs=1)
    path = tmp_path / "a" / "checkpoints" / "last.ckpt"
    content = read_checkpoint(path)
    config = {
        "model": {"transformer": {"activation_checkpointing": False}},
        "optim": {"optimizer": {"class_path": "x.AdamW"}},
    }
    content["triptych"] |= config
    given = {
        "model": {"transformer": {"activation_checkpointing": True}},
        "optim": {"optimizer": {"class_path": "x.AdamW"}},
    }
    check_resumable(path, content, domain="toy", settings=given, max_epochs=None)
    given["optim"]["optimizer"] = {"class_path": "x.Muon"}
    with pytest.raises(UserError, match=r"optimizer\.class_path was x\.AdamW, is x\.Muon.*state"):
        check_resumable(path, content, domain="toy", settings=given, max_epochs=None)


class InterruptBefore(Callback):
    """What a signal between the start and the first step does."""

    def on_fit_start(self, *_: Any) -> None:
        raise Interrupted(2, "came before the first step; nothing new was kept")


def test_a_start_that_is_interrupted_before_the_first_step_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="nothing new was kept"):
        go(tmp_path, resume=False, max_epochs=1, callbacks=[InterruptBefore()])
    assert not (tmp_path / "a").exists()
    go(tmp_path, resume=False, max_epochs=1)
    kept = {path.name for path in (tmp_path / "a").iterdir()}
    with pytest.raises(Interrupted):
        go(tmp_path, resume=True, max_epochs=2, callbacks=[InterruptBefore()])
    assert kept <= {path.name for path in (tmp_path / "a").iterdir()}
    assert checkpoint(tmp_path / "a")["global_step"] == 7
