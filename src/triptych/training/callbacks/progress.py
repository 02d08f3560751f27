"""Progress of a run as lines of standard output; in a terminal one line is rewritten."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
from lightning_fabric.utilities.rank_zero import rank_zero_only
from pytorch_lightning.callbacks import Callback

from triptych.files.progress import end_line, write_line

if TYPE_CHECKING:
    from triptych.training.engine.module import TrainingModule


@rank_zero_only
def say(sentence: str) -> None:
    """Print a sentence to standard output, on rank 0 only."""
    write_line(sentence, sys.stdout)


def clock(seconds: float | None) -> str:
    """Return seconds as h:mm:ss; "?" if unknown."""
    return "?" if seconds is None else str(timedelta(seconds=round(seconds)))


class ShowProgress(Callback):
    """Print step, loss, tokens per second, share of waiting for data, and the time left; on a GPU
    also its peak memory and MFU.

    seconds_between: interval of lines in a log; a terminal line is rewritten more often.
    Lightning's progress bars show the batches of an epoch, without the time left of the run.
    """

    def __init__(self, task: TrainingModule, *, seconds_between: float = 5.0) -> None:
        self.task = task
        self.terminal = sys.stdout.isatty()
        self.seconds_between = 0.25 if self.terminal else seconds_between
        self._total: int | None = None
        self._first_step = 0
        self._began = 0.0
        self._shown = 0.0
        self._validation_began = 0.0

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._total = self.task.total_steps()
        self._first_step = trainer.global_step
        self._began = self._shown = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        now = time.monotonic()
        if not trainer.is_global_zero or now - self._shown < self.seconds_between:
            return
        self._shown = now
        step, speed = trainer.global_step, self.task.throughput
        of = f"/{self._total}" if self._total else ""
        use = self.task.device_use()
        memory = f"  {use['time/peak_memory_gib']:.1f} GiB" if use else ""
        mfu = f"  MFU {use['time/mfu']:.0%}" if "time/mfu" in use else ""
        self._line(
            f"step {step}{of}  loss {speed.loss():.4f}  {speed.tokens_per_second():,.0f} tokens/s"
            f"  data {speed.data_share():.0%}{memory}{mfu}"
            f"  {clock(self.seconds_left(step, now))} left"
        )

    def seconds_left(self, step: int, now: float) -> float | None:
        """Return the seconds until the last step; None if unknown."""
        steps = step - self._first_step
        if self._total is None or steps < 1:
            return None
        return max(0, self._total - step) * (now - self._began) / steps

    def on_validation_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._validation_began = time.monotonic()
        if self.terminal and trainer.is_global_zero and not trainer.sanity_checking:
            self._line(f"step {trainer.global_step}  validation")

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.sanity_checking:
            return
        seconds = time.monotonic() - self._validation_began
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in self.task.latest.items())
        say(f"validation at step {trainer.global_step}: {metrics}  ({seconds:.1f} s)")

    def on_exception(self, *_: Any) -> None:
        """End a terminal's progress line, so that the message begins a new one."""
        end_line()

    def _line(self, text: str) -> None:
        write_line(text, sys.stdout, ended=not self.terminal)
