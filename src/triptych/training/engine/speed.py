"""Speed of training: loss and targets per second, time of a step."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from triptych.training.engine.devices import choose_precision, uses_cuda

if TYPE_CHECKING:
    from triptych.training.engine.module import TrainingModule


class Throughput:
    """Sums of loss and targets since the last report, and the time of training without validation.

    seconds_waiting: returns the total seconds that the training has waited for batches.
    """

    def __init__(self, seconds_waiting: Callable[[], float] = float) -> None:
        self._seconds_waiting = seconds_waiting
        self._start = time.monotonic()
        self._paused_at: float | None = None
        self.reset()

    def reset(self) -> None:
        """Begin the next report."""
        self._seconds_before = self.total_seconds()
        self._waited_before = self._seconds_waiting()
        self._loss_sum: Tensor | float = 0.0
        self._targets: Tensor | float = 0.0

    def add(self, *, targets: Tensor, loss_sum: Tensor) -> None:
        """Add a step: its number of targets and the sum of the objective over them."""
        self._targets = self._targets + targets
        self._loss_sum = self._loss_sum + loss_sum

    def pause(self) -> None:
        """Stop the clock."""
        self._paused_at = time.monotonic()

    def resume(self) -> None:
        """Continue the clock."""
        if self._paused_at is not None:
            self._start += time.monotonic() - self._paused_at
            self._paused_at = None

    def loss(self) -> float:
        """Return the mean objective per target since the last report; NaN without targets."""
        targets = float(self._targets)
        return float(self._loss_sum) / targets if targets else math.nan

    def is_finite(self) -> bool:
        """Return whether every loss since the last report was finite."""
        return math.isfinite(float(self._loss_sum))

    def tokens_per_second(self) -> float:
        """Return targets per second of training since the last report."""
        return float(self._targets) / self._seconds()

    def data_share(self) -> float:
        """Return the share of the time since the last report spent waiting for batches."""
        return (self._seconds_waiting() - self._waited_before) / self._seconds()

    def total_seconds(self) -> float:
        """Return seconds of training since the start of this process's training."""
        now = time.monotonic() if self._paused_at is None else self._paused_at
        return now - self._start

    def _seconds(self) -> float:
        return max(1e-9, self.total_seconds() - self._seconds_before)


class StepTime(NamedTuple):
    """Median time of an update, in seconds."""

    seconds: float
    processor_seconds: float
    """Time of all threads on processors; below `seconds` where other work takes the processors, or
    where a GPU computes."""


def time_steps(
    task: TrainingModule, loader: Any, trainer: dict[str, Any], *, steps: int
) -> StepTime:
    """Return the time of an update: forward and backward pass, and the optimiser.

    The parameters are updated. trainer: arguments of the run's Trainer, for device and precision.
    One update more is made first and not counted.
    """
    device = torch.device("cuda" if uses_cuda(trainer) else "cpu")
    mixed = choose_precision(trainer) == "bf16-mixed"
    task = task.to(device).train()
    (optimizer,) = task.configure_optimizers()
    batches = _endless(loader)
    times = []
    for _ in range(steps + 1):
        started = time.perf_counter(), time.process_time()
        batch = task.transfer_batch_to_device(next(batches), device, 0)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            loss, _ = task.training_loss(batch)
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    return StepTime(*map(statistics.median, zip(*times[1:], strict=True)))


def _endless(loader: Any) -> Iterator[Any]:
    """Yield the batches of one pass over the data after the other."""
    while True:
        yield from loader
