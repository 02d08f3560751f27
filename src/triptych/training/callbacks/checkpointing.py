"""When last.ckpt and best.ckpt are written, so that a resumed run misses nothing."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from triptych.training.callbacks.ema import WeightAverage
from triptych.training.checkpoint import duplicate
from triptych.training.module import TrainingModule


class KeepCheckpoints(Checkpoint):
    """Write last.ckpt after validations, every `minutes`, at a stop and at the end; best.ckpt too.

    Never last.ckpt in the middle of accumulated gradients, for they are in no checkpoint: a save
    that comes due there waits for the next update. (best.ckpt is written at once; a run that had to
    go on from it would lose the gradients summed so far.) Nothing is written after a step whose
    loss was not finite.
    average: whoever keeps a mean of the weights, which then is what best.ckpt holds first.
    """

    def __init__(
        self, folder: Path, *, minutes: float, average: WeightAverage | None = None
    ) -> None:
        self.folder = folder
        self.minutes = minutes
        self.average = average
        self.best_value: float | None = None
        self.best_step = -1
        self.saved_step = -1
        self._saved_at = time.monotonic()
        self._step = -1
        self._whole_step = True
        self._late = False
        self._stop_waits = False

    @property
    def last(self) -> Path:
        """The file that `--resume` reads."""
        return self.folder / "last.ckpt"

    @property
    def best(self) -> Path:
        """The file with the best validation score so far."""
        return self.folder / "best.ckpt"

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run must know of the best score."""
        return {"best_value": self.best_value, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the best score over from the run before."""
        self.best_value = state_dict["best_value"]
        self.best_step = state_dict["best_step"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._saved_at = time.monotonic()
        self._step = trainer.global_step

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save where minutes have gone by, the last update is done, or a save is late."""
        self._whole_step = trainer.global_step != self._step
        self._step = trainer.global_step
        self._put_off_stop(trainer)
        if not self._whole_step or validation_may_follow(trainer):
            return  # a save before a validation that is due would make the resumed run skip it
        at_end = 0 < trainer.max_steps <= trainer.global_step
        if at_end or self._late or self._overdue(trainer):
            self.save(trainer, pl_module)

    def _overdue(self, trainer: pl.Trainer) -> bool:
        overdue = 0 < self.minutes <= (time.monotonic() - self._saved_at) / 60
        if trainer.world_size == 1:
            return overdue
        # Clocks differ between ranks, so rank 0 decides; asking at every step would cost too much.
        return trainer.global_step % 50 == 0 and bool(trainer.strategy.broadcast(overdue))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save last.ckpt, and best.ckpt where the score is better than any before."""
        assert isinstance(pl_module, TrainingModule)
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        value = pl_module.latest[pl_module.monitor]
        better = self.best_value is None or (
            value < self.best_value if pl_module.monitor_mode == "min" else value > self.best_value
        )
        if better:
            self.best_value, self.best_step = value, trainer.global_step
        # Between updates the gradients summed so far would be lost: last.ckpt must wait then.
        self._late = not self._whole_step
        if better and not trainer.fast_dev_run:
            # Before last.ckpt, which says that this score is kept: a kill may come in between.
            pl_module.check_finite()
            with self.average.leading() if self.average is not None else nullcontext():
                trainer.save_checkpoint(self.best)
        if not self._late:
            self.save(trainer, pl_module, as_best=better and self.average is None)
        self._put_off_stop(trainer)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Save where a signal ended the run between two steps; other ends leave last.ckpt alone."""
        if isinstance(exception, SIGTERMException):
            self.save(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put Lightning's counters into a state that its loops resume from exactly."""
        settle_epoch(checkpoint["loops"]["fit_loop"])

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the end of the run where nothing did so before, or not rightly."""
        # A stop that is asked for brings a validation, whose save leaves an epoch open that has
        # ended: a resumed run would go on in it.
        in_ended_epoch = trainer.should_stop and trainer.is_last_batch
        if self.saved_step != trainer.global_step or in_ended_epoch:
            self.save(trainer, pl_module)

    def _put_off_stop(self, trainer: pl.Trainer) -> None:
        """Let an end that was asked for, by the clock or by patience, wait for a whole step."""
        if trainer.should_stop and not self._whole_step:
            trainer.should_stop, self._stop_waits = False, True
        elif self._stop_waits and self._whole_step:
            trainer.should_stop, self._stop_waits = True, False

    def save(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *, as_best: bool = False
    ) -> None:
        """Write last.ckpt; all ranks must call it. as_best: best.ckpt has just got the same."""
        assert isinstance(pl_module, TrainingModule)
        if trainer.fast_dev_run:
            return
        pl_module.check_finite()
        if not as_best:
            trainer.save_checkpoint(self.last)
        elif trainer.is_global_zero:
            duplicate(self.best, self.last)
        self.saved_step = trainer.global_step
        self._saved_at = time.monotonic()
        self._late = False


def settle_epoch(loops: dict[str, Any]) -> None:
    """Correct the counters of an epoch that Lightning 2.6 has closed, in place.

    Resumed from the end of an epoch it would go on counting batches where the old epoch stopped, so
    that accumulation and validation fall on other batches: the new epoch must begin at 0. Stopped
    by a limit inside an epoch it closes that epoch all the same: it must be open again.
    """
    epoch, batch = loops["epoch_progress"], loops["epoch_loop.batch_progress"]
    closed = epoch["current"]["completed"] == epoch["current"]["ready"] > 0
    if closed and batch["is_last_batch"]:
        batch["current"] = dict.fromkeys(batch["current"], 0)
        batch["is_last_batch"] = False
    elif closed and batch["current"]["ready"]:
        for part in ("current", "total"):
            for count in ("processed", "completed"):
                epoch[part][count] -= 1


def validation_may_follow(trainer: pl.Trainer) -> bool:
    """Tell whether Lightning may validate right after the batch that has just ended."""
    if not trainer.enable_validation:
        return False
    if trainer.is_last_batch:
        return True
    every = trainer.val_check_batch
    if every is None or every == float("inf"):
        return False
    fit = trainer.fit_loop
    in_all = trainer.check_val_every_n_epoch is None
    done = (fit.total_batch_idx if in_all else fit.batch_idx) + 1
    return done % int(every) == 0
