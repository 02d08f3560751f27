"""Speed of training: loss and targets per second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from torch import Tensor


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
        """Add a step; loss_sum: of the objective over its targets."""
        self._targets = self._targets + targets
        self._loss_sum = self._loss_sum + loss_sum

    def pause(self) -> None:
        self._paused_at = time.monotonic()

    def resume(self) -> None:
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
