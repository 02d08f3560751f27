"""Relative attention: a learned vector per distance and head, skewed instead of gathered."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych.core.attention.backends.skew import Distances
from triptych.core.attention.backends.spans import Reach, queries_per_tile, tiles_over
from triptych.core.attention.backends.tiled import attend_in_tiles
from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import MaskPattern, by_head
from triptych.core.attention.multihead import MultiHeadAttention, head_width


@dataclass(frozen=True)
class Relative(AttentionConfig):
    """Learned distances (Huang et al. 2018, Music Transformer, sections 3.3 to 3.5)."""

    max_distance: int = 256
    """Longest distance with a vector of its own, in positions; farther ones share that vector."""
    window: int | None = None
    """How many positions a query reads, itself included, in positions; null for all of the past."""

    def __post_init__(self) -> None:
        if self.max_distance < 1:
            raise ValueError(f"max_distance must be at least 1, got {self.max_distance}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window must be at least 1 or null, got {self.window}")

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> MultiHeadAttention:
        pattern = RelativePattern(
            n_heads=n_heads,
            d_head=head_width(d_model, n_heads),
            max_distance=self.max_distance,
            window=self.window,
            causal=causal,
        )
        return MultiHeadAttention(d_model, n_heads, pattern)

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


class RelativePattern(MaskPattern):
    """S_rel[i, j] = q_i . e[i - j] with one table of vectors e per head.

    The table is ordered by distance i - j: from 0 to the longest for a causal layer, from minus
    the longest to the longest for one that reads both ways. Distances beyond the longest use the
    longest one's vector (Shaw et al. 2018, section 3.2, clipping).
    """

    def __init__(
        self, *, n_heads: int, d_head: int, max_distance: int, window: int | None, causal: bool
    ) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.window = window
        self.causal = causal
        n_vectors = max_distance + 1 if causal else 2 * max_distance + 1
        self.table = nn.Parameter(torch.randn(n_heads, n_vectors, d_head) * d_head**-0.5)

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        visible = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if self.window is not None:
            visible = visible & (distance.abs() < self.window)
        return visible

    def relation(self, query: Tensor, key: Tensor) -> Tensor:
        return self._vector(query - key)

    def related(self, q: Tensor) -> Tensor:
        return by_head(q, self.table)  # [B, H, Q, vectors]

    def kind(self) -> Hashable:
        return type(self), self.max_distance, self.window, self.causal

    def n_slots(self, max_length: int, ahead: int = 0) -> int:
        return max_length if self.window is None else min(self.window + ahead, max_length)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, dropout: float = 0.0
    ) -> Tensor:
        length = q.shape[2]
        before = None if self.window is None else self.window - 1
        reach = Reach(before, after=0 if self.causal else before)
        tiles = tiles_over(reach, length, queries_per_tile(length, q), q.device)
        # A tile's corners lie farther apart than any of its visible pairs.
        farthest = max(tile.stop - 1 - tile.start for tile in tiles)
        nearest = 0 if self.causal else min(tile.first - (tile.end - 1) for tile in tiles)
        return attend_in_tiles(
            q,
            k,
            v,
            tiles,
            vectors=self._vectors(farthest, nearest, q),
            distances=Distances(farthest, nearest),
            padding=padding,
            dropout=dropout,
        )

    def _vector(self, distance: Tensor) -> Tensor:
        """Index into the table of each distance, clipped at its ends."""
        if self.causal:
            return distance.clamp(0, self.max_distance)
        return distance.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def _vectors(self, first: int, last: int, like: Tensor) -> Tensor:
        """The vectors of distances first, first - 1, ..., last: [H, first - last + 1, E]."""
        largest, smallest = self.max_distance, 0 if self.causal else -self.max_distance
        table = self.table.to(like.dtype)
        nearer = table[:, max(last, smallest) - smallest : min(first, largest) - smallest + 1]
        # Repeated by `expand`: a gathered table would add up its gradient vector by vector.
        return torch.cat(
            [
                table[:, -1:].expand(-1, max(0, first - largest), -1),
                nearer.flip(1),
                table[:, :1].expand(-1, max(0, smallest - last), -1),
            ],
            dim=1,
        )
