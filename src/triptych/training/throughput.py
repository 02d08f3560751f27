"""Running loss and speed, kept on the device so that a GPU never waits for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from torch import Tensor


class Meter:
    """Loss and targets since the last report, and the time that training (not validation) took.

    seconds_waiting: says how long the training has waited for its batches so far, in all.
    """

    def __init__(self, seconds_waiting: Callable[[], float] = float) -> None:
        self._seconds_waiting = seconds_waiting
        self._waited_before = seconds_waiting()
        self._loss_sum: Tensor | float = 0.0
        self._targets: Tensor | float = 0.0
        self._since = time.monotonic()
        self._paused_at: float | None = None
        self._seconds_before = 0.0

    def add(self, *, targets: Tensor, loss_sum: Tensor) -> None:
        """Count a step: its real targets and the sum of the objective over them."""
        self._targets = self._targets + targets
        self._loss_sum = self._loss_sum + loss_sum

    def pause(self) -> None:
        """Stop the clock: validation begins."""
        if self._paused_at is None:
            self._paused_at = time.monotonic()

    def go_on(self) -> None:
        """Let the clock run again."""
        if self._paused_at is not None:
            self._since += time.monotonic() - self._paused_at
            self._paused_at = None

    def loss(self) -> float:
        """Return the mean objective per target since the last report; NaN where there was none."""
        targets = float(self._targets)
        return float(self._loss_sum) / targets if targets else math.nan

    def is_finite(self) -> bool:
        """Tell whether every loss so far was finite: sums keep NaN and infinity."""
        return math.isfinite(float(self._loss_sum))

    def tokens_per_second(self) -> float:
        """Return real targets per second of training since the last report."""
        return float(self._targets) / max(1e-9, self.seconds())

    def data_share(self) -> float:
        """Return the share of the time since the last report that went into making batches."""
        return (self._seconds_waiting() - self._waited_before) / max(1e-9, self.seconds())

    def seconds(self) -> float:
        """Return seconds of training since the last report, without validation."""
        now = time.monotonic() if self._paused_at is None else self._paused_at
        return now - self._since

    def seconds_in_all(self) -> float:
        """Return seconds of training since this process began to train, without validation."""
        return self._seconds_before + self.seconds()

    def reset(self) -> None:
        """Begin a new report."""
        self._seconds_before += self.seconds()
        self._waited_before = self._seconds_waiting()
        self._loss_sum = 0.0
        self._targets = 0.0
        self._since = time.monotonic() if self._paused_at is None else self._paused_at
