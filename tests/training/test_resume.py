"""A run that is cut and resumed gives, bit for bit, what the uncut run gives."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback
from toy_task import (
    DataSettings,
    ModelSettings,
    ToyTask,
    train,
    train_loader,
    validation_loader,
    weights,
)

from triptych.errors import Interrupted, UserError
from triptych.training.lightning_fixes import AtomicCheckpointIO
from triptych.training.run.checkpoint import read_checkpoint
from triptych.training.run.settings import ComputeConfig, OptimConfig, RunConfig

STEPS = 12


class KillAt(Callback):
    """Send a signal to this process while batch number `batch` (from 0, over all) is trained."""

    def __init__(self, batch: int, signum: int = signal.SIGTERM) -> None:
        self.batch = batch
        self.signum = signum

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.fit_loop.total_batch_idx == self.batch:
            os.kill(os.getpid(), self.signum)


def settings(**more: Any) -> dict[str, Any]:
    return {
        "max_steps": STEPS,
        "val_check_interval": 4,
        "check_val_every_n_epoch": None,
        "log_every_n_steps": 1,
        "accelerator": "cpu",
        "precision": "32-true",
        "enable_progress_bar": False,
        "gradient_clip_val": 1.0,
        **more,
    }


def run_config(folder: Path, name: str, **more: Any) -> RunConfig:
    return RunConfig(name=name, directory=str(folder), wandb="off", seed=3, **more)


def go(
    folder: Path, name: str, trainer: dict[str, Any], *, uneven: bool, resume: bool = False
) -> ToyTask:
    # Another start than the uncut run's: everything must come from the checkpoint.
    task = ToyTask(initial=1 if resume else 0)
    loader = train_loader(uneven=uneven)
    with contextlib.suppress(Interrupted):
        train(task, loader, validation_loader(), run_config(folder, name), trainer, resume)
    return task


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    """metrics.csv without what time it took."""
    with (folder / name / "metrics.csv").open(encoding="utf-8") as file:
        return [
            {key: value for key, value in row.items() if not key.startswith("time/")}
            for row in csv.DictReader(file)
        ]


def assert_equal_runs(uncut: ToyTask, first: ToyTask, second: ToyTask) -> None:
    assert first.seen + second.seen == uncut.seen, "the batches differ"
    assert first.losses + second.losses == uncut.losses, "the losses differ"
    for name, value in weights(uncut).items():
        assert torch.equal(value, weights(second)[name]), name
    assert second.latest == uncut.latest


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[ToyTask, list[dict[str, str]]]:
    """The uncut run of the plain settings, and its rows of metrics."""
    folder = tmp_path_factory.mktemp("plain")
    return go(folder, "uncut", settings(), uneven=False), rows(folder, "uncut")


Uncut = tuple[ToyTask, list[dict[str, str]]]

VARIANTS = {
    "plain": ({}, False),
    "accumulation": ({"accumulate_grad_batches": 2, "max_steps": 8}, False),
    "accumulation out of step": ({"accumulate_grad_batches": 3, "max_steps": 6}, True),
    "uneven epochs": ({}, True),
    "validation each epoch": (
        {"max_steps": 15, "val_check_interval": 1.0, "check_val_every_n_epoch": 1},
        True,
    ),
    "validation each epoch, accumulation": (
        {
            "max_steps": 9,
            "val_check_interval": 1.0,
            "check_val_every_n_epoch": 1,
            "accumulate_grad_batches": 2,
        },
        False,
    ),
    "epochs": (
        {"max_steps": -1, "max_epochs": 2, "val_check_interval": 1.0, "check_val_every_n_epoch": 1},
        False,
    ),
    "limited": ({"limit_train_batches": 5, "accumulate_grad_batches": 2, "max_steps": 8}, False),
    "validation every other epoch": (
        {"limit_train_batches": 5, "val_check_interval": 2, "check_val_every_n_epoch": 2},
        False,
    ),
}


@pytest.mark.parametrize(
    "variant",
    [
        name if name == "limited" else pytest.param(name, marks=pytest.mark.slow)
        for name in VARIANTS
    ],
)
def test_cut_and_resumed_run_is_bit_exact(variant: str, tmp_path: Path) -> None:
    more, uneven = VARIANTS[variant]
    uncut = go(tmp_path, "uncut", settings(**more), uneven=uneven)
    assert len(uncut.seen) >= 12
    # mid-epoch, before and at a validation, last and first batch of an epoch, mid-accumulation
    for cut in (0, 2, 3, 6, 7, 9):
        name = f"cut-{cut}"
        first = go(tmp_path, name, settings(**more, callbacks=[KillAt(cut)]), uneven=uneven)
        assert cut < len(first.seen) < len(uncut.seen), cut
        second = go(tmp_path, name, settings(**more), uneven=uneven, resume=True)
        assert_equal_runs(uncut, first, second)
        assert rows(tmp_path, name) == rows(tmp_path, "uncut"), cut


@pytest.mark.slow
def test_a_run_with_workers_is_the_run_without(tmp_path: Path) -> None:
    uncut = go(tmp_path, "uncut", settings(), uneven=True)
    tasks = []
    for resume in (False, True):
        config = run_config(tmp_path, "workers", compute=ComputeConfig(data_workers=2))
        trainer = settings() if resume else settings(callbacks=[KillAt(5)])
        tasks.append(ToyTask(initial=int(resume)))
        with contextlib.suppress(Interrupted):
            loader = train_loader(uneven=True)
            train(tasks[-1], loader, validation_loader(), config, trainer, resume)
    assert_equal_runs(uncut, *tasks)


def test_two_cuts_one_after_the_other(plain_run: Uncut, tmp_path: Path) -> None:
    uncut, _ = plain_run
    first = go(tmp_path, "cut", settings(callbacks=[KillAt(2)]), uneven=False)
    second = go(tmp_path, "cut", settings(callbacks=[KillAt(8)]), uneven=False, resume=True)
    third = go(tmp_path, "cut", settings(), uneven=False, resume=True)
    first.seen += second.seen
    first.losses += second.losses
    assert_equal_runs(uncut, first, third)


@pytest.mark.parametrize(
    ("variant", "steps"),
    [
        ("plain", 4),
        ("plain", 7),
        ("epochs", 3),
        ("limited", 3),
        ("validation every other epoch", 2),
    ],
)
def test_a_run_that_ended_goes_on_when_more_steps_are_asked(
    variant: str, steps: int, tmp_path: Path
) -> None:
    """At a validation, at the end of an epoch and inside one."""
    more, uneven = VARIANTS[variant]
    uncut = go(tmp_path, "uncut", settings(**more), uneven=uneven)
    first = go(tmp_path, "more", settings(**{**more, "max_steps": steps}), uneven=uneven)
    second = go(tmp_path, "more", settings(**more), uneven=uneven, resume=True)
    assert_equal_runs(uncut, first, second)
    assert rows(tmp_path, "more") == rows(tmp_path, "uncut")


class CrashAt(Callback):
    """Raise when the batch of that number begins: what was not saved is lost."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.fit_loop.total_batch_idx == self.batch:
            raise RuntimeError("planted")


def test_periodic_checkpoint_resumes_exactly(plain_run: Uncut, tmp_path: Path) -> None:
    uncut, _ = plain_run
    first = ToyTask()
    config = run_config(tmp_path, "crash", save_minutes=1e-9)
    with pytest.raises(RuntimeError, match="planted"):
        train(first, train_loader(), validation_loader(), config, settings(callbacks=[CrashAt(6)]))
    content = read_checkpoint(tmp_path / "crash" / "checkpoints" / "last.ckpt")
    assert content["triptych"]["step"] == 6
    second = go(tmp_path, "crash", settings(), uneven=False, resume=True)
    assert_equal_runs(uncut, first, second)


def test_periodic_checkpoint_does_not_skip_the_validation_that_is_due(
    plain_run: Uncut, tmp_path: Path
) -> None:
    class CrashInValidation(ToyTask):
        def score(self, batch: Any) -> Any:
            if self.trainer.global_step == 8:
                raise RuntimeError("planted")
            return super().score(batch)

    _, expected = plain_run
    config = run_config(tmp_path, "crash", save_minutes=1e-9)
    with pytest.raises(RuntimeError, match="planted"):
        train(CrashInValidation(), train_loader(), validation_loader(), config, settings())
    content = read_checkpoint(tmp_path / "crash" / "checkpoints" / "last.ckpt")
    assert content["triptych"]["step"] == 6, "not at 8, nor at 7, the last batch of its epoch"
    go(tmp_path, "crash", settings(), uneven=False, resume=True)
    assert rows(tmp_path, "crash") == expected


def test_save_that_is_due_amid_accumulated_gradients_waits_for_the_update(tmp_path: Path) -> None:
    options = {"accumulate_grad_batches": 2, "max_steps": 6, "val_check_interval": 3}
    uncut = go(tmp_path, "uncut", settings(**options), uneven=False)
    first = ToyTask()
    trainer = settings(**options, callbacks=[CrashAt(4)])
    with pytest.raises(RuntimeError, match="planted"):
        train(first, train_loader(), validation_loader(), run_config(tmp_path, "crash"), trainer)
    content = read_checkpoint(tmp_path / "crash" / "checkpoints" / "last.ckpt")
    assert content["triptych"]["step"] == 2, "validation was after 3 batches, the update after 4"
    second = go(tmp_path, "crash", settings(**options), uneven=False, resume=True)
    assert_equal_runs(uncut, first, second)


def test_best_score_survives_a_resume(tmp_path: Path) -> None:
    class Worse(ToyTask):
        def metrics(self, totals: dict[str, float]) -> dict[str, float]:
            return {"nats_per_token": float(self.trainer.global_step)}

    config = run_config(tmp_path, "a")
    train(Worse(), train_loader(), validation_loader(), config, settings(max_steps=4))
    best = tmp_path / "a" / "checkpoints" / "best.ckpt"
    before = best.read_bytes()
    train(Worse(), train_loader(), validation_loader(), config, settings(), True)
    assert best.read_bytes() == before
    assert read_checkpoint(best)["triptych"]["metrics"]["nats_per_token"] == 4


def test_resuming_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing to resume.*checkpoints"):
        go(tmp_path, "a", settings(), uneven=False, resume=True)
    assert not (tmp_path / "a").exists()


def test_damaged_last_checkpoint_falls_back_to_the_best(
    plain_run: Uncut, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uncut, expected = plain_run
    go(tmp_path, "a", settings(max_steps=6), uneven=False)
    last = tmp_path / "a" / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:2000])
    capsys.readouterr()
    second = go(tmp_path, "a", settings(), uneven=False, resume=True)
    said = capsys.readouterr().out
    assert "last.ckpt is missing or damaged" in said
    assert re.search(r"Resuming from step 4, .*best\.ckpt", said)
    for name, value in weights(uncut).items():
        assert torch.equal(value, weights(second)[name]), name
    assert rows(tmp_path, "a") == expected


def test_both_checkpoints_damaged_is_an_error(tmp_path: Path) -> None:
    go(tmp_path, "a", settings(max_steps=4), uneven=False)
    for name in ("last.ckpt", "best.ckpt"):
        (tmp_path / "a" / "checkpoints" / name).write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(UserError, match=r"last\.ckpt.*best\.ckpt"):
        go(tmp_path, "a", settings(), uneven=False, resume=True)


def test_another_seed_or_model_is_refused_and_other_changes_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(tmp_path, "a", settings(max_steps=4), uneven=False)
    other_seed = RunConfig(name="a", directory=str(tmp_path), wandb="off", seed=4)
    with pytest.raises(UserError, match=r"run\.seed was 3, is 4"):
        train(ToyTask(), train_loader(), validation_loader(), other_seed, settings(), True)
    wider = ToyTask()
    wider.config = replace(wider.config, model=ModelSettings(32))
    config = run_config(tmp_path, "a")
    with pytest.raises(UserError, match=r"model\.d_model was 16, is 32"):
        train(wider, train_loader(), validation_loader(), config, settings(), True)
    with pytest.raises(UserError, match=r"seed 5.*6"):
        train(ToyTask(), train_loader(seed=6), validation_loader(), config, settings(), True)
    changed = ToyTask(OptimConfig(learning_rate=0.5))
    train(changed, train_loader(), validation_loader(), config, settings(), True)
    assert "optim.learning_rate was 0.01, is 0.5" in capsys.readouterr().out
    assert (tmp_path / "a" / "config.step-00000004.yaml").is_file()


def test_other_weights_or_another_vocabulary_are_refused(tmp_path: Path) -> None:
    go(tmp_path, "a", settings(max_steps=4), uneven=False)
    config = run_config(tmp_path, "a")
    other = ToyTask()
    other.model.last = torch.nn.Linear(16, 12)
    words = ToyTask()
    words.config = replace(words.config, data=DataSettings(2))
    words.metadata["vocabulary"] = ["a", "b", "c"]
    wordless = ToyTask()
    wordless.model.last = torch.nn.Linear(16, 10, bias=False)
    for task, says in (
        (other, r"cannot be resumed: the weight model\.last\.bias is \[10\] in .* \[12\] in this"),
        (words, r"another vocabulary .*\(data\.n was 1, is 2\)"),
        (wordless, r"last\.bias is \[10\] in the checkpoint and missing in"),
    ):
        with pytest.raises(UserError, match=says):
            train(task, train_loader(), validation_loader(), config, settings(), True)


class StopAfter(Callback):
    """Ask for the end after a batch, as Lightning's own clock does."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.fit_loop.total_batch_idx >= self.batch:
            trainer.should_stop = True


@pytest.mark.parametrize("batch", [4, 5, 6])  # batches 3 to 5 are one update
def test_the_clock_waits_for_a_whole_step(batch: int, tmp_path: Path) -> None:
    options = {"accumulate_grad_batches": 3, "max_steps": 4}
    uncut = go(tmp_path, "uncut", settings(**options), uneven=False)
    cut = settings(**options, callbacks=[StopAfter(batch)])
    first = go(tmp_path, "cut", cut, uneven=False)
    assert len(first.losses) == (6 if batch < 6 else 7), "an epoch has seven"
    second = go(tmp_path, "cut", settings(**options), uneven=False, resume=True)
    assert_equal_runs(uncut, first, second)


def test_patience_waits_for_a_whole_step(tmp_path: Path) -> None:
    class Flat(ToyTask):
        def metrics(self, totals: dict[str, float]) -> dict[str, float]:
            return {"nats_per_token": 1.0}

    options = settings(accumulate_grad_batches=3, max_steps=4, val_check_interval=2)
    config, task = run_config(tmp_path, "a", early_stopping_patience=1), Flat()
    train(task, train_loader(), validation_loader(), config, options)
    assert len(task.losses) == 6, "validations after 2 and 4 batches, the update after 6"
    content = read_checkpoint(tmp_path / "a/checkpoints/last.ckpt")
    assert content["triptych"]["step"] == 2


def test_a_kill_while_the_best_is_kept_loses_no_better_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """last.ckpt never says of a score that it is kept before it is."""

    save = AtomicCheckpointIO.save_checkpoint

    def killed(self: Any, checkpoint: Any, path: Any, **more: Any) -> None:
        if Path(path).name == "last.ckpt":
            raise RuntimeError("planted")
        save(self, checkpoint, path, **more)

    config = run_config(tmp_path, "a")
    train(ToyTask(), train_loader(), validation_loader(), config, settings(max_steps=4))
    monkeypatch.setattr(AtomicCheckpointIO, "save_checkpoint", killed)
    with pytest.raises(RuntimeError, match="planted"):
        train(ToyTask(), train_loader(), validation_loader(), config, settings(), True)
    best, last = (
        read_checkpoint(tmp_path / "a/checkpoints" / f"{name}.ckpt")["triptych"]["step"]
        for name in ("best", "last")
    )
    assert (best, last) == (8, 4)
