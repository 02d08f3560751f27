"""A run that is cut and resumed gives, bit for bit, what the uncut run gives."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
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
    checkpoint,
    rows,
    toy_run,
    train_loader,
    weights,
)

from triptych.errors import Interrupted, UserError
from triptych.training.lightning_fixes import AtomicCheckpointIO
from triptych.training.run.checkpoint import read_checkpoint
from triptych.training.run.settings import ComputeConfig, OptimConfig


class KillAt(Callback):
    """Send a signal to this process while batch number `batch` (from 0, over all) is trained."""

    def __init__(self, batch: int, signum: int = signal.SIGTERM) -> None:
        self.batch = batch
        self.signum = signum

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.fit_loop.total_batch_idx == self.batch:
            os.kill(os.getpid(), self.signum)


LONG = {"max_steps": 12, "val_check_interval": 4, "gradient_clip_val": 1.0}


def long_run(
    folder: Path, task: ToyTask | None = None, *, uneven: bool = False, **more: Any
) -> ToyTask:
    """A run of several epochs, which a signal may end."""
    # Another start than the uncut run's: everything must come from the checkpoint.
    task = task or ToyTask(initial=int(more.get("resume", False)))
    with contextlib.suppress(Interrupted):
        toy_run(folder, task, **{**LONG, "loader": train_loader(uneven=uneven), **more})
    return task


def timeless(folder: Path) -> list[dict[str, str]]:
    """metrics.csv without what time it took."""
    return [
        {key: value for key, value in row.items() if not key.startswith("time/")}
        for row in rows(folder)
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
    return long_run(folder), timeless(folder)


Uncut = tuple[ToyTask, list[dict[str, str]]]

EPOCHS = {"val_check_interval": 1.0, "check_val_every_n_epoch": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"accumulate_grad_batches": 2, "max_steps": 8},
    "accumulation out of step": {"accumulate_grad_batches": 3, "max_steps": 6, "uneven": True},
    "uneven epochs": {"uneven": True},
    "validation each epoch": {**EPOCHS, "max_steps": 15, "uneven": True},
    "validation each epoch, accumulation": {
        **EPOCHS, "max_steps": 9, "accumulate_grad_batches": 2,
    },
    "epochs": {**EPOCHS, "max_steps": -1, "max_epochs": 2},
    "limited": {"limit_train_batches": 5, "accumulate_grad_batches": 2, "max_steps": 8},
    "deterministic": {"deterministic": True, "max_steps": 12},
    "validation every other epoch": {
        "limit_train_batches": 5, "val_check_interval": 2, "check_val_every_n_epoch": 2,
    },
}  # fmt: skip


@pytest.fixture
def as_before() -> Iterator[None]:
    """Lightning leaves the algorithms deterministic."""
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    "variant",
    [
        name if name == "limited" else pytest.param(name, marks=pytest.mark.slow)
        for name in VARIANTS
    ],
)
def test_cut_and_resumed_run_is_bit_exact(variant: str, tmp_path: Path) -> None:
    more = VARIANTS[variant]
    uncut = long_run(tmp_path / "uncut", **more)
    assert len(uncut.seen) >= 12
    # mid-epoch, before and at a validation, last and first batch of an epoch, mid-accumulation
    for cut in (0, 2, 3, 6, 7, 9):
        folder = tmp_path / f"cut-{cut}"
        first = long_run(folder, callbacks=[KillAt(cut)], **more)
        assert cut < len(first.seen) < len(uncut.seen), cut
        second = long_run(folder, resume=True, **more)
        assert_equal_runs(uncut, first, second)
        assert timeless(folder) == timeless(tmp_path / "uncut"), cut


@pytest.mark.slow
def test_a_run_with_workers_is_the_run_without(tmp_path: Path) -> None:
    uncut = long_run(tmp_path / "uncut", uneven=True)
    workers = {"compute": ComputeConfig(data_workers=2)}
    tasks = [
        long_run(tmp_path / "workers", uneven=True, run=workers, **more)
        for more in ({"callbacks": [KillAt(5)]}, {"resume": True})
    ]
    assert_equal_runs(uncut, *tasks)


def test_two_cuts_one_after_the_other(plain_run: Uncut, tmp_path: Path) -> None:
    uncut, _ = plain_run
    first = long_run(tmp_path, callbacks=[KillAt(2)])
    second = long_run(tmp_path, callbacks=[KillAt(8)], resume=True)
    third = long_run(tmp_path, resume=True)
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
    more = VARIANTS[variant]
    uncut = long_run(tmp_path / "uncut", **more)
    first = long_run(tmp_path / "more", **{**more, "max_steps": steps})
    second = long_run(tmp_path / "more", **more, resume=True)
    assert_equal_runs(uncut, first, second)
    assert timeless(tmp_path / "more") == timeless(tmp_path / "uncut")


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
    with pytest.raises(RuntimeError, match="planted"):
        long_run(tmp_path, first, run={"save_minutes": 1e-9}, callbacks=[CrashAt(6)])
    assert checkpoint(tmp_path)["triptych"]["step"] == 6
    second = long_run(tmp_path, resume=True)
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
    with pytest.raises(RuntimeError, match="planted"):
        long_run(tmp_path, CrashInValidation(), run={"save_minutes": 1e-9})
    step = checkpoint(tmp_path)["triptych"]["step"]
    assert step == 6, "not at 8, nor at 7, the last batch of its epoch"
    long_run(tmp_path, resume=True)
    assert timeless(tmp_path) == expected


def test_save_that_is_due_amid_accumulated_gradients_waits_for_the_update(tmp_path: Path) -> None:
    options = {"accumulate_grad_batches": 2, "max_steps": 6, "val_check_interval": 3}
    uncut, first = long_run(tmp_path / "uncut", **options), ToyTask()
    crash = tmp_path / "crash"
    with pytest.raises(RuntimeError, match="planted"):
        long_run(crash, first, callbacks=[CrashAt(4)], **options)
    step = checkpoint(crash)["triptych"]["step"]
    assert step == 2, "validation was after 3 batches, the update after 4"
    assert_equal_runs(uncut, first, long_run(crash, resume=True, **options))


def test_best_score_survives_a_resume(tmp_path: Path) -> None:
    class Worse(ToyTask):
        def metrics(self, totals: dict[str, float]) -> dict[str, float]:
            return {"nats_per_token": float(self.trainer.global_step)}

    long_run(tmp_path, Worse(), max_steps=4)
    best = tmp_path / "checkpoints" / "best.ckpt"
    before = best.read_bytes()
    long_run(tmp_path, Worse(), resume=True)
    assert best.read_bytes() == before
    assert read_checkpoint(best)["triptych"]["metrics"]["nats_per_token"] == 4


def test_resuming_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing to resume.*checkpoints"):
        long_run(tmp_path / "a", resume=True)
    assert not (tmp_path / "a").exists()


def test_damaged_last_checkpoint_falls_back_to_the_best(
    plain_run: Uncut, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uncut, expected = plain_run
    long_run(tmp_path, max_steps=6)
    last = tmp_path / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:2000])
    capsys.readouterr()
    second = long_run(tmp_path, resume=True)
    said = capsys.readouterr().out
    assert "last.ckpt is missing or damaged" in said
    assert re.search(r"Resuming from step 4, .*best\.ckpt", said)
    for name, value in weights(uncut).items():
        assert torch.equal(value, weights(second)[name]), name
    assert timeless(tmp_path) == expected


def test_both_checkpoints_damaged_is_an_error(tmp_path: Path) -> None:
    long_run(tmp_path, max_steps=4)
    for name in ("last.ckpt", "best.ckpt"):
        (tmp_path / "checkpoints" / name).write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(UserError, match=r"last\.ckpt.*best\.ckpt"):
        long_run(tmp_path, resume=True)


def test_another_seed_or_model_is_refused_and_other_changes_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long_run(tmp_path, max_steps=4)
    with pytest.raises(UserError, match=r"run\.seed was 3, is 4"):
        long_run(tmp_path, run={"seed": 4}, resume=True)
    wider = ToyTask()
    wider.config = replace(wider.config, model=ModelSettings(32))
    with pytest.raises(UserError, match=r"model\.d_model was 16, is 32"):
        long_run(tmp_path, wider, resume=True)
    with pytest.raises(UserError, match="batches are others"):
        long_run(tmp_path, loader=train_loader(seed=6), resume=True)
    long_run(tmp_path, ToyTask(OptimConfig(learning_rate=0.5)), resume=True)
    assert "optim.learning_rate was 0.01, is 0.5" in capsys.readouterr().out
    assert (tmp_path / "config.step-00000004.yaml").is_file()


def test_other_weights_or_another_vocabulary_are_refused(tmp_path: Path) -> None:
    long_run(tmp_path, max_steps=4)
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
            long_run(tmp_path, task, resume=True)


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
    uncut = long_run(tmp_path / "uncut", **options)
    first = long_run(tmp_path / "cut", **options, callbacks=[StopAfter(batch)])
    assert len(first.losses) == (6 if batch < 6 else 7), "an epoch has seven"
    second = long_run(tmp_path / "cut", **options, resume=True)
    assert_equal_runs(uncut, first, second)


def test_patience_waits_for_a_whole_step(tmp_path: Path) -> None:
    class Flat(ToyTask):
        def metrics(self, totals: dict[str, float]) -> dict[str, float]:
            return {"nats_per_token": 1.0}

    options = {"accumulate_grad_batches": 3, "max_steps": 4, "val_check_interval": 2}
    task = long_run(tmp_path, Flat(), run={"early_stopping_patience": 1}, **options)
    assert len(task.losses) == 6, "validations after 2 and 4 batches, the update after 6"
    assert checkpoint(tmp_path)["triptych"]["step"] == 2


def test_a_kill_while_the_best_is_kept_loses_no_better_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """last.ckpt never says of a score that it is kept before it is."""

    save = AtomicCheckpointIO.save_checkpoint

    def killed(self: Any, checkpoint: Any, path: Any, **more: Any) -> None:
        if Path(path).name == "last.ckpt":
            raise RuntimeError("planted")
        save(self, checkpoint, path, **more)

    long_run(tmp_path, max_steps=4)
    monkeypatch.setattr(AtomicCheckpointIO, "save_checkpoint", killed)
    with pytest.raises(RuntimeError, match="planted"):
        long_run(tmp_path, resume=True)
    steps = [checkpoint(tmp_path, name)["triptych"]["step"] for name in ("best", "last")]
    assert steps == [8, 4]
