"""The end of a run at a signal: after the update, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from triptych.errors import Interrupted
from triptych.training.callbacks.progress import say
from triptych.training.engine.module import STOP_SIGNALS, TrainingModule
from triptych.training.lightning_fixes import end_after_batch, take_signals_back


class StopOnSignal(Callback):
    """End the run after the current update at SIGTERM or SIGINT; at once at a second signal.

    A validation that is due takes place first. `KeepCheckpoints` writes the checkpoint. Python's
    KeyboardInterrupt could come in the middle of an update. Lightning's own handlers end a run with
    exit code 0 or 1.
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
            raise Interrupted(signum, "came before the first step; nothing was kept")
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
