"""What happens around the steps: seeds, stop signals, patience."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping

from triptych.training.callbacks.progress import say
from triptych.training.data import ResumableLoader, derive_seed
from triptych.training.exceptions import Interrupted
from triptych.training.module import STOP_SIGNALS, TrainingModule


class StepSeed(Callback):
    """Seed torch before every step from (seed, rank, batches taken): dropout survives a resume.

    Nothing else that draws random numbers (validation, samples) can then shift the training.
    """

    def __init__(self, seed: int, loader: ResumableLoader) -> None:
        self.seed = seed
        self.loader = loader

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seed the step that begins."""
        seed = derive_seed(self.seed, trainer.global_rank, self.loader.batches_taken, 2)
        # torch.manual_seed would do, but takes half a millisecond where CUDA lies unused.
        torch.default_generator.manual_seed(seed)
        device = trainer.strategy.root_device.type
        if device == "cuda":
            torch.cuda.manual_seed(seed)
        elif device != "cpu":
            torch.manual_seed(seed)


class StopOnSignal(Callback):
    """End the run at the next whole step after SIGTERM or SIGINT; a second signal ends it at once.

    The checkpoint is written by `KeepCheckpoints` when Lightning leaves its loop, which it does
    after the validation that may be due at that step: a resumed run then misses nothing. Python's
    own KeyboardInterrupt could come in the middle of an update and leave half of the weights new.
    """

    def __init__(self) -> None:
        self.received = 0
        self.began = False
        """Whether the training has begun."""
        self._training = False
        self._task: TrainingModule | None = None
        self._step = -1
        self._whole_step = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the signals over inside the block; only the main thread can."""
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
        """Note the signal; before the training or the second time raise Interrupted at once."""
        name = signal.Signals(signum).name
        if not self._training:
            raise Interrupted(f"{name} came before the first step; nothing was kept.", signum)
        if self.received:
            raise Interrupted(
                f"{name} came a second time: stopped at once, without another checkpoint.", signum
            )
        self.received = signum
        if self._task is not None:
            self._task.stop_signal = signum
        say(f"{name}: stopping after this step and writing a checkpoint; once more stops at once.")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Put our handlers in place of Lightning's, whose exit code would be 0 or 1."""
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
        """Ask Lightning to leave its loop, once all ranks agree and no update is half summed."""
        assert isinstance(pl_module, TrainingModule)
        self._whole_step = trainer.global_step != self._step
        self._step = trainer.global_step
        if pl_module.agreed_stop and self._whole_step:
            self.received = pl_module.agreed_stop
            self._leave(trainer, True)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Let the validation that is due finish: half of its sums could not be resumed."""
        self._leave(trainer, False)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave now, where that was asked before or during the validation."""
        assert isinstance(pl_module, TrainingModule)
        # Ranks that leave one by one would wait for each other for ever: only agreement counts.
        alone = trainer.world_size == 1
        asked = pl_module.stop_signal if alone else pl_module.agreed_stop
        self._leave(trainer, bool(asked) and self._whole_step and not trainer.sanity_checking)

    @staticmethod
    def _leave(trainer: pl.Trainer, now: bool) -> None:
        # The flag that Lightning's own handler sets: it raises SIGTERMException after the batch,
        # or the batch of validation, that is under way.
        trainer._signal_connector.received_sigterm = now


class Patience(EarlyStopping):
    """End the run after so many validations without a better score.

    It looks after each validation, not at the end of an epoch: there last.ckpt, which must hold how
    long it has waited, is written already.
    """

    def __init__(self, monitor: str, patience: int, *, mode: str) -> None:
        super().__init__(
            f"val/{monitor}", patience=patience, mode=mode, check_on_train_epoch_end=False
        )
        self._given = patience

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over how long the run has waited, with the patience that this start was given."""
        super().load_state_dict(state_dict)
        self.patience = self._given
