"""Parts of a run that a user writes in one file: an optimiser and a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from triptych.training.optim.optimizers import OptimizerConfig, trainable
from triptych.training.optim.schedules import ScheduleConfig


@dataclass(frozen=True)
class Momentum(OptimizerConfig):
    """Gradient descent with momentum."""

    momentum: float = 0.9
    """Decay of the moving average of the gradient, per update."""

    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(trainable(module), lr=learning_rate, momentum=self.momentum)


@dataclass(frozen=True)
class Halving(ScheduleConfig):
    """Rate that halves again and again."""

    every: int = 2
    """Updates with one rate."""

    def rate(
        self, peak: float, step: int, *, total_steps: int | None = None, d_model: int | None = None
    ) -> float:
        return peak * 0.5 ** ((step - 1) // self.every)
