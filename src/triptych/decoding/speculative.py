"""Speculative decoding with drafts that repeat earlier values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draft:
    """Draft that repeats the values `lag` positions before; verified by the model in one step.

    Four voices in turn hold most of their notes (lag 4). Verification samples every value from the
    model's distribution with the same random numbers, so a draft changes the speed and no value
    (Leviathan et al. 2023, with a deterministic draft).
    """

    lag: int
    """Distance to the values that are repeated, in positions."""
    count: int = 8
    """Number of values that are drafted at once, in positions."""

    def __post_init__(self) -> None:
        for name in ("lag", "count"):
            if getattr(self, name) < 1:
                raise ValueError(f"a draft's {name} must be at least 1, got {getattr(self, name)}")

    def write(self, values: Tensor, t: int) -> None:
        """Write drafted values into values [B, L, ...] from position t on, t at least 1."""
        count, lag = min(self.count, values.shape[1] - t), min(self.lag, t)
        source = t - lag + torch.arange(count, device=values.device) % lag  # [count]
        values[:, t : t + count] = values.index_select(1, source)
