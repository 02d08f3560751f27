"""How far the run is: a bar in a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from lightning_fabric.utilities.rank_zero import rank_zero_only
from pytorch_lightning.callbacks import Callback
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
)

from triptych.training.module import TrainingModule

QUIET = (
    # We lay the run's folder out ourselves and say in plain words what is in it.
    r".*smaller than the logging interval.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    # Concerns torch's DataLoader only; our loaders build batches in the process.
    r".*does not have many workers.*",
    # One library's notice to another, nothing that a user of Triptych could change.
    r".*isinstance\(treespec, LeafSpec\).*",
    r".*`lr_scheduler\.step\(\)` before.*",
)


@rank_zero_only
def say(sentence: str) -> None:
    """Print a sentence to standard output, once however many processes there are."""
    print(sentence, flush=True)


def quiet_lightning() -> None:
    """Silence Lightning's greetings and a few warnings that do not concern the user; no others."""
    for name in ("pytorch_lightning", "lightning_fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in QUIET:
        warnings.filterwarnings("ignore", message=message)


def clock(seconds: float | None) -> str:
    """Write seconds as h:mm:ss; "?" where they are not known."""
    return "?" if seconds is None else str(timedelta(seconds=round(seconds)))


class ShowProgress(Callback):
    """Show step, loss, tokens per second, the share of the data and the time left.

    The share is that of the time of training which goes into making batches, since the last report.

    The time left is the time since the first step over the steps made, so it counts validation and
    everything else that recurs. In a terminal a rich bar stands below whatever is printed;
    elsewhere a plain line comes every `seconds_between` seconds and after every validation.
    """

    def __init__(self, *, seconds_between: float = 5.0, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout)
        self.seconds_between = seconds_between
        self._bar: Progress | None = None
        self._train_bar: TaskID | None = None
        self._score_bar: TaskID | None = None
        self._total: int | None = None
        self._first_step = 0
        self._began = 0.0
        self._shown = 0.0
        self._score_began = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the bar."""
        assert isinstance(pl_module, TrainingModule)
        if not trainer.is_global_zero:
            return
        self._total = pl_module.total_steps()
        self._first_step = trainer.global_step
        self._began = self._shown = time.monotonic()
        if self.console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                console=self.console,
                refresh_per_second=4,
            )
            self._train_bar = self._bar.add_task(
                "training", total=self._total, completed=self._first_step, note=""
            )
            self._bar.start()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Refresh the bar, or print a line, where it is time."""
        assert isinstance(pl_module, TrainingModule)
        now = time.monotonic()
        wait = 0.25 if self._bar is not None else self.seconds_between
        if not trainer.is_global_zero or now - self._shown < wait:
            return
        self._shown = now
        step = trainer.global_step
        speed = pl_module.throughput
        note = (
            f"loss {speed.loss():.4f}  {speed.tokens_per_second():,.0f} tokens/s"
            f"  data {speed.data_share():.0%}"
            f"  {clock(self.seconds_left(step, now))} left"
        )
        if self._bar is not None and self._train_bar is not None:
            self._bar.update(self._train_bar, completed=step, note=note)
        else:
            of = f"/{self._total}" if self._total else ""
            say(f"step {step}{of}  {note}")

    def seconds_left(self, step: int, now: float) -> float | None:
        """Return seconds to the end at the pace since the start; None where either is unknown."""
        made = step - self._first_step
        if self._total is None or made < 1:
            return None
        return max(0, self._total - step) * (now - self._began) / made

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the second bar."""
        self._score_began = time.monotonic()
        if self._bar is not None:
            total = sum(int(n) for n in trainer.num_val_batches if n != float("inf")) or None
            self._score_bar = self._bar.add_task("validation", total=total, note="")

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Move the second bar."""
        if self._bar is not None and self._score_bar is not None:
            self._bar.update(self._score_bar, completed=batch_idx + 1)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the second bar and print the scores."""
        assert isinstance(pl_module, TrainingModule)
        if self._bar is not None and self._score_bar is not None:
            self._bar.remove_task(self._score_bar)
            self._score_bar = None
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        seconds = time.monotonic() - self._score_began
        figures = "  ".join(f"{name} {value:.4f}" for name, value in pl_module.latest.items())
        line = f"validation at step {trainer.global_step}: {figures}  ({seconds:.1f} s)"
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False)
        else:
            say(line)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the bar."""
        if self._bar is not None and self._train_bar is not None:
            self._bar.update(self._train_bar, completed=trainer.global_step)
        self.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Close the bar, so that what is said next stands below it."""
        self.close()

    def close(self) -> None:
        """Take the bar down; the terminal is left as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
