"""Writing of checkpoints from which a run goes on bit by bit, and the end of a run at a signal."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from triptych.errors import Interrupted
from triptych.training.callbacks.progress import say
from triptych.training.engine.module import STOP_SIGNALS, TrainingModule
from triptych.training.lightning_fixes import (
    end_after_batch,
    settle_epoch,
    take_signals_back,
    validation_may_follow,
)


class KeepCheckpoints(Checkpoint):
    """Write last.ckpt after validations, every `minutes`, at a stop and at the end; and best.ckpt.

    late-STEP.ckpt are the checkpoints of the last `late` validations. last.ckpt waits for the end
    of an update, since no checkpoint contains the gradients of its micro-batches; best.ckpt does
    not, and loses them. Nothing is written after a loss that is not finite.

    Lightning's ModelCheckpoint saves between micro-batches, saves before a validation that is due
    (which a resumed run then skips), and with save_on_exception saves diverged weights.
    """

    task: TrainingModule

    def __init__(self, folder: Path, *, minutes: float, late: int = 0) -> None:
        self.last = folder / "last.ckpt"
        self.best = folder / "best.ckpt"
        self.folder, self.minutes, self.n_late = folder, minutes, late
        self.best_value: float | None = None
        self.best_step = -1
        self.saved_step = -1
        self._saved_at = time.monotonic()
        self._late = False
        self._stop_waits = False

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_value = state_dict["best_value"]
        self.best_step = state_dict["best_step"]

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        assert isinstance(pl_module, TrainingModule)
        self.task = pl_module

    def on_train_start(self, *_: Any) -> None:
        self._saved_at = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._put_off_stop(trainer)
        if not self.task.whole_step or validation_may_follow(trainer):
            return  # a run resumed from before a due validation would skip it
        at_end = 0 < trainer.max_steps <= trainer.global_step
        if at_end or self._late or self._overdue(trainer):
            self.save(trainer)

    def _overdue(self, trainer: pl.Trainer) -> bool:
        overdue = 0 < self.minutes <= (time.monotonic() - self._saved_at) / 60
        if trainer.world_size == 1:
            return overdue
        # Clocks differ between ranks, so rank 0 decides, at few steps to save time.
        return trainer.global_step % 50 == 0 and bool(trainer.strategy.broadcast(overdue))

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.sanity_checking:
            return
        value = self.task.latest[self.task.monitor]
        sign = 1 if self.task.monitor_mode == "max" else -1
        if self.best_value is None or sign * value > sign * self.best_value:
            self.best_value, self.best_step = value, trainer.global_step
            # Before last.ckpt, whose state names this score as saved.
            self._write(trainer, self.best)
        if self.n_late and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._write_late(trainer)
        self._late = not self.task.whole_step
        if not self._late:
            self.save(trainer)
        self._put_off_stop(trainer)

    def _write_late(self, trainer: pl.Trainer) -> None:
        newest = self.folder / f"late-{trainer.global_step:08d}.ckpt"
        self._write(trainer, newest)
        if trainer.is_global_zero:
            # A run that is resumed from best.ckpt may find files of later steps.
            paths = sorted(self.folder.glob("late-*.ckpt"))
            kept = [path for path in paths if path <= newest][-self.n_late :]
            for path in set(paths).difference(kept):
                path.unlink()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, SIGTERMException):
            self.save(trainer)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        settle_epoch(checkpoint["loops"]["fit_loop"])

    def on_train_end(self, trainer: pl.Trainer, *_: Any) -> None:
        # The validation at a requested stop was saved with its epoch still open; a resumed run
        # would continue that epoch.
        in_ended_epoch = trainer.should_stop and trainer.is_last_batch
        if self.saved_step != trainer.global_step or in_ended_epoch:
            self.save(trainer)

    def _put_off_stop(self, trainer: pl.Trainer) -> None:
        """Delay a stop by max_time or early stopping to the end of the update."""
        if trainer.should_stop and not self.task.whole_step:
            trainer.should_stop, self._stop_waits = False, True
        elif self._stop_waits and self.task.whole_step:
            trainer.should_stop, self._stop_waits = True, False

    def save(self, trainer: pl.Trainer) -> None:
        """Write last.ckpt, on all ranks."""
        self._write(trainer, self.last)
        self.saved_step = trainer.global_step
        self._saved_at = time.monotonic()
        self._late = False

    def _write(self, trainer: pl.Trainer, path: Path) -> None:
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self.task.check_finite()
            trainer.save_checkpoint(path)


class StopOnSignal(Callback):
    """End the run after the current update at SIGTERM or SIGINT; at once at a second signal.

    A validation that is due takes place first. KeyboardInterrupt could come in the middle of an
    update, and Lightning's own handlers end a run with exit code 0 or 1.
    """

    def __init__(self, task: TrainingModule) -> None:
        self.task = task
        task.stop_signal = task.agreed_stop = 0
        self.began = False
        """Whether the training has begun."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self.handle) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Remember the signal; raise Interrupted before the training and at a second signal."""
        if not self.began:
            raise Interrupted(signum, "came before the first step; nothing new was kept")
        if self.task.stop_signal:
            raise Interrupted(
                signum, "came a second time: stopped at once, without another checkpoint"
            )
        self.task.stop_signal = signum
        name = signal.Signals(signum).name
        say(f"{name}: stopping after this step and writing a checkpoint; once more stops at once.")

    def on_train_start(self, *_: Any) -> None:
        self.began = True
        if threading.current_thread() is threading.main_thread():
            take_signals_back(STOP_SIGNALS, self.handle)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if self.task.agreed_stop and self.task.whole_step:
            end_after_batch(trainer, True)

    def on_validation_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Delay the stop until the end of a validation that is due."""
        end_after_batch(trainer, False)

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        # Without agreement one rank would leave while the others wait for it.
        alone = trainer.world_size == 1
        asked = self.task.stop_signal if alone else self.task.agreed_stop
        end_after_batch(
            trainer, bool(asked) and self.task.whole_step and not trainer.sanity_checking
        )
