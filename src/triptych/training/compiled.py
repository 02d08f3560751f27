"""torch.compile of the training loss, with what it costs and gains said in numbers."""

from __future__ import annotations

import functools
import math
import statistics
import time
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from triptych.errors import UserError
from triptych.training.callbacks.progress import clock, say
from triptych.training.module import TrainingModule

WATCHED = 12
"""Batches after which the gain is told: the first ones compile, the later half is compared."""


@functools.cache
def check_compiler(device: str = "cpu") -> None:
    """Compile a small function forward and backward; UserError in one sentence where that fails.

    Only a trial tells: a compiler may be missing, too old, or without Python's headers.
    """
    x = torch.ones(64, device=device, requires_grad=True)
    try:
        torch.compile(lambda x: (x.sin() * 2).sum())(x).backward()
    except Exception as error:  # torch wraps the compiler's failure in types of its own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        needs = "a working C++ compiler (g++)" if device == "cpu" else "Triton and a C compiler"
        raise UserError(
            f"run.compile needs {needs} on this machine, and compiling a small function failed: "
            f"{reason[:200].rstrip('. :')}. Install it, or leave run.compile off."
        ) from error


class CompileLoss(Callback):
    """Have the training loss compiled, time the first batches, and say when it has paid.

    Only the function is compiled, not the module: names in checkpoints stay as they are, and
    validation and samples use the same weights uncompiled. Shapes that change are compiled once
    more as variable. Must stand before whoever seeds the steps, since its trial draws numbers.
    """

    def __init__(self) -> None:
        self._plain = math.nan
        self._timed: list[tuple[float, float]] = []
        self._began = 0.0
        self._targets: torch.Tensor | int = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Put the compiled loss in place; nothing is compiled before the first batch."""
        assert isinstance(pl_module, TrainingModule)
        compiled = torch.compile(pl_module.training_loss)

        def loss(batch: Any) -> Any:
            objective, self._targets = compiled(batch)
            return objective, self._targets

        pl_module.compiled_loss = loss
        self._timed = []

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock; before the first batch time the uncompiled loss on it."""
        assert isinstance(pl_module, TrainingModule)
        if len(self._timed) > WATCHED:
            return
        if not self._timed and math.isnan(self._plain):
            self._plain = self._seconds_per_target(trainer, pl_module, batch)
        wait_for_device(pl_module)
        self._began = time.perf_counter()

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop the clock; after some batches say what came of it."""
        assert isinstance(pl_module, TrainingModule)
        if len(self._timed) > WATCHED:
            return
        wait_for_device(pl_module)
        self._timed.append((time.perf_counter() - self._began, float(self._targets)))
        if len(self._timed) == WATCHED:
            say(verdict(self._timed, self._plain))
            self._timed.append((0.0, 0.0))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Put the plain loss back."""
        assert isinstance(pl_module, TrainingModule)
        pl_module.compiled_loss = None

    @staticmethod
    def _seconds_per_target(trainer: pl.Trainer, task: TrainingModule, batch: Any) -> float:
        """Time the uncompiled loss, forward and backward; no gradient is left behind."""
        weights = [parameter for parameter in task.parameters() if parameter.requires_grad]
        best = math.inf
        targets = 1.0
        for _ in range(2):  # the first one allocates
            wait_for_device(task)
            began = time.perf_counter()
            with trainer.precision_plugin.train_step_context():
                loss, count = task.training_loss(batch)
            # Not `backward`, which would add up gradients, and exchange them between processes.
            torch.autograd.grad(loss, weights, allow_unused=True)
            wait_for_device(task)
            best, targets = min(best, time.perf_counter() - began), max(1.0, float(count))
        return best / targets


def wait_for_device(task: TrainingModule) -> None:
    """Let a GPU finish, so that the clock tells the truth."""
    if task.device.type == "cuda":
        torch.cuda.synchronize(task.device)


def verdict(timed: list[tuple[float, float]], plain: float) -> str:
    """Say in a sentence what compiling cost and gains.

    timed: seconds of forward and backward and targets of the first batches; plain: seconds of a
    target without compiling.
    """
    later = timed[len(timed) // 2 :]
    steady = statistics.median(seconds / max(1.0, targets) for seconds, targets in later)
    slow = [number for number, (s, t) in enumerate(timed, 1) if s > 2 * max(steady, plain) * t]
    warm_up = sum(seconds - steady * targets for seconds, targets in timed)
    usual = sum(targets for _, targets in timed) / len(timed)
    text = (
        f"Compiled: the first {len(timed)} batches took {sum(s for s, _ in timed):.1f} s, "
        f"{max(0.0, warm_up):.1f} s of it compiling"
        + (f" (at batch {', '.join(map(str, slow))})" if slow else "")
        + f"; forward and backward take {1e3 * steady * usual:,.1f} ms a batch instead of "
        f"{1e3 * plain * usual:,.1f} ms ({plain / steady:.2f} x)"
    )
    gain = (plain - steady) * usual
    if gain <= 0.02 * plain * usual:
        return text + ": it does not pay here, leave run.compile off."
    batches = math.ceil(max(0.0, warm_up) / gain)
    return text + f": it pays after {batches:,} batches ({clock(batches * steady * usual)})."
