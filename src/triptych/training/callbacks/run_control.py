"""Ends of a run that the settings do not plan: signals and early stopping."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, EarlyStopping

from triptych.training.callbacks.progress import say
from triptych.training.exceptions import Interrupted
from triptych.training.module import STOP_SIGNALS, TrainingModule


class StopOnSignal(Callback):
    """End the run after the current update at SIGTERM or SIGINT; at once at a second signal.

    A validation that is due takes place first. `KeepCheckpoints` writes the checkpoint. Python's
    KeyboardInterrupt could come in the middle of an update. Lightning's own handlers end a run with
    exit code 0 or 1.
    """

    def __init__(self) -> None:
        self.received = 0
        """Number of the signal, 0 for none."""
        self.began = False
        """Whether the training has begun."""
        self._training = False
        self._task: TrainingModule | None = None
        self._step = -1
        self._whole_step = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals inside the block, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self.handle) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            self._training = False
            for number, handler in former.items():
                signal.signal(number, handler)

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Remember the signal; raise Interrupted before the training and at a second signal."""
        name = signal.Signals(signum).name
        if not self._training:
            raise Interrupted(f"{name} came before the first step; nothing was kept", signum)
        if self.received:
            raise Interrupted(
                f"{name} came a second time: stopped at once, without another checkpoint", signum
            )
        self.received = signum
        if self._task is not None:
            self._task.stop_signal = signum
        say(f"{name}: stopping after this step and writing a checkpoint; once more stops at once.")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Replace the handlers that Lightning has installed."""
        assert isinstance(pl_module, TrainingModule)
        self._task = pl_module
        self._step = trainer.global_step
        self._training = self.began = True
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                signal.signal(number, self.handle)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Stop if all ranks agree and the update is complete."""
        assert isinstance(pl_module, TrainingModule)
        self._whole_step = trainer.global_step != self._step
        self._step = trainer.global_step
        if pl_module.agreed_stop and self._whole_step:
            self.received = pl_module.agreed_stop
            self._leave(trainer, True)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Delay the stop until the end of a validation that is due."""
        self._leave(trainer, False)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop if asked before or during the validation."""
        assert isinstance(pl_module, TrainingModule)
        # Without agreement one rank would leave while the others wait for it.
        alone = trainer.world_size == 1
        asked = pl_module.stop_signal if alone else pl_module.agreed_stop
        self._leave(trainer, bool(asked) and self._whole_step and not trainer.sanity_checking)

    @staticmethod
    def _leave(trainer: pl.Trainer, now: bool) -> None:
        # Lightning raises SIGTERMException after the current batch if this flag is set. It has no
        # public function that ends the loop without another validation.
        trainer._signal_connector.received_sigterm = now


class Patience(EarlyStopping):
    """Lightning's EarlyStopping after each validation, with the patience of this start.

    By default EarlyStopping checks at the end of an epoch, after last.ckpt is written, and restores
    the patience of the checkpoint.
    """

    def __init__(self, monitor: str, patience: int, *, mode: str) -> None:
        super().__init__(
            f"val/{monitor}", patience=patience, mode=mode, check_on_train_epoch_end=False
        )
        self._given = patience

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the number of validations waited, but not the patience."""
        super().load_state_dict(state_dict)
        self.patience = self._given
