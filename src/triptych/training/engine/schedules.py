"""Schedules of the learning rate, each named by its class path."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from triptych.types import Checked, ClosedUnitInterval, NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class ScheduleConfig(Checked, ABC):
    """Learning rate as a function of the update."""

    needs_end: ClassVar[bool] = False
    """Whether the rate depends on the number of updates of the whole run."""
    needs_width: ClassVar[bool] = False
    """Whether the rate depends on the width of the model."""

    @abstractmethod
    def rate(
        self, peak: float, step: int, *, total_steps: int | None = None, d_model: int | None = None
    ) -> float:
        """Return the learning rate of update `step`; the first update is 1.

        peak: optim.learning_rate. total_steps: updates of the whole run; None if only time limits
        it. d_model: width of the model; None for one without.
        """


@dataclass(frozen=True)
class Warmup(ScheduleConfig):
    """Straight line from 0 to the highest rate over the first updates, and a curve after it."""

    warmup_steps: NonNegativeInt = 400
    """Updates over which the learning rate rises linearly."""

    def rate(
        self, peak: float, step: int, *, total_steps: int | None = None, d_model: int | None = None
    ) -> float:
        if step < self.warmup_steps:
            return peak * step / self.warmup_steps
        return self.after_warmup(peak, step, total_steps)

    @abstractmethod
    def after_warmup(self, peak: float, step: int, total_steps: int | None) -> float:
        """Return the learning rate of an update from `warmup_steps` on."""


@dataclass(frozen=True)
class Constant(Warmup):
    """The highest rate after the warm-up."""

    def after_warmup(self, peak: float, step: int, total_steps: int | None) -> float:
        return peak


@dataclass(frozen=True)
class InverseSqrt(Warmup):
    """Inverse square root of the update after the warm-up."""

    def after_warmup(self, peak: float, step: int, total_steps: int | None) -> float:
        return peak * math.sqrt(max(self.warmup_steps, 1) / step)


@dataclass(frozen=True)
class Cosine(Warmup):
    """Half a cosine wave from the highest rate to the last update (Loshchilov and Hutter 2017)."""

    needs_end: ClassVar[bool] = True

    min_ratio: ClosedUnitInterval = 0.0
    """Last learning rate, as a fraction of the highest."""

    def after_warmup(self, peak: float, step: int, total_steps: int | None) -> float:
        assert total_steps is not None, "see checks.check_settings"
        warmup = self.warmup_steps
        progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
        share = 0.5 * (1.0 + math.cos(math.pi * progress))
        return peak * (self.min_ratio + (1.0 - self.min_ratio) * share)


@dataclass(frozen=True)
class Noam(ScheduleConfig):
    """Schedule of the first Transformer (Vaswani et al. 2017, section 5.3, equation 3).

    learning_rate x d_model^-0.5 x min(step^-0.5, step x warmup_steps^-1.5); the learning rate is a
    factor, 1 in the paper.
    """

    needs_width: ClassVar[bool] = True

    warmup_steps: PositiveInt = 400
    """Updates over which the learning rate rises linearly."""

    def rate(
        self, peak: float, step: int, *, total_steps: int | None = None, d_model: int | None = None
    ) -> float:
        assert d_model is not None, "a model without a width refuses the schedule"
        warmup = self.warmup_steps
        return peak / math.sqrt(d_model) * min(1 / math.sqrt(step), step / math.sqrt(warmup) ** 3)
