"""Relative attention: a learned vector per distance and head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import MaskPattern, SlidingWindow
from triptych.core.attention.relative_bias import RelativeBias
from triptych.errors import at_least


@dataclass(frozen=True)
class Relative(AttentionConfig):
    """Learned vectors of distances (Huang et al. 2018, Music Transformer, sections 3.3 to 3.5)."""

    max_distance: int = 256
    """Longest distance with a vector of its own, in positions; longer ones share that vector."""
    window: int | None = None
    """Number of positions that a query reads, itself included; null for all of the past."""

    def __post_init__(self) -> None:
        at_least(self, 1, "max_distance", "window")

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return SlidingWindow(causal, self.window)

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> RelativeBias:
        return DistanceBias(n_heads, d_head, self.max_distance, causal)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls(max_distance=32), (13,)),  # table longer than the sequence
            Example(cls(max_distance=5), (13,)),  # beyond the longest distance
            Example(cls(max_distance=32, window=4), (13,)),  # a ring that the length does not fill
            Example(cls(max_distance=2, window=5), (15,)),
            Example(cls(max_distance=32, window=40), (13,)),
            Example(cls(max_distance=5), (13,), causal=False),
            Example(cls(max_distance=32, window=3), (13,), causal=False),
        ]


class DistanceBias(RelativeBias):
    """S_rel[i, j] = q_i . e[i - j] with one table of vectors e per head.

    The table is ordered by distance i - j: from 0 to the longest for a causal layer, from minus
    the longest to the longest for one that reads both ways. Distances beyond the longest use the
    longest one's vector (Shaw et al. 2018, section 3.2, clipping).
    """

    def __init__(self, n_heads: int, d_head: int, max_distance: int, causal: bool) -> None:
        super().__init__()
        self.longest, self.smallest = max_distance, 0 if causal else -max_distance
        n_vectors = self.longest - self.smallest + 1
        self.table = nn.Parameter(torch.randn(n_heads, n_vectors, d_head) * d_head**-0.5)

    def tables(self) -> tuple[nn.Parameter, ...]:
        return (self.table,)

    def index(self, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        return ((query - key).clamp(self.smallest, self.longest) - self.smallest,)
