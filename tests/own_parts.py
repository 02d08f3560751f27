"""Parts of a run that a user writes in one file: a source of data, an optimiser and a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.training.engine.optim import OptimizerConfig, ScheduleConfig, trainable


@dataclass(frozen=True)
class Scales(PieceSource):
    """Four voices that walk up a scale again and again."""

    content = ChoraleTokenizer.content

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        steps = np.arange(32)[:, None] % 8
        grids = [number + np.array([[60, 55, 50, 45]]) + steps for number in range(4)]
        return [Piece(f"{split}-{number}", grid) for number, grid in enumerate(grids)]


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
