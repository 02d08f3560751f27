"""Guesses that a model reads at once: the same values from the same random numbers, sooner."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draft:
    """Guess that what stood `lag` positions before stands there again.

    In four voices one after another a voice's note is held for most 16ths (lag 4); in a picture
    the pixel beside (lag 1 or the channels) or above (the row) is alike.
    """

    lag: int
    """How far back the guess is taken from, in positions."""
    count: int = 8
    """How many values are guessed at once, in positions."""

    def __post_init__(self) -> None:
        for name in ("lag", "count"):
            if getattr(self, name) < 1:
                raise ValueError(f"a draft's {name} must be at least 1, got {getattr(self, name)}")

    def write(self, values: Tensor, t: int) -> None:
        """Put the guesses into values [B, L, ...] from t on, t at least 1."""
        count, lag = min(self.count, values.shape[1] - t), min(self.lag, t)
        source = t - lag + torch.arange(count, device=values.device) % lag
        values[:, t : t + count] = values.index_select(1, source)
