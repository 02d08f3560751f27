"""Relative attention: a learned vector per distance and head."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import KeySpan, MaskPattern, per_head_logits
from triptych.core.attention.multihead import MultiHeadAttention, head_width


@dataclass(frozen=True)
class Relative(AttentionConfig):
    """Learned vectors of distances (Huang et al. 2018, Music Transformer, sections 3.3 to 3.5)."""

    supports_rotary = False

    max_distance: int = 256
    """Longest distance with a vector of its own, in positions; longer ones share that vector."""
    window: int | None = None
    """Number of positions that a query reads, itself included; null for all of the past."""

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

    def key_span(self, first: int, stop: int, length: int) -> KeySpan:
        window = length if self.window is None else self.window
        after = 0 if self.causal else window - 1  # keys after the query that it sees
        return KeySpan(
            max(0, first - window + 1),
            max(0, stop - window),
            min(length, first + after + 1),
            min(length, stop + after),
        )

    def relative_index(self, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        smallest = 0 if self.causal else -self.max_distance
        return ((query - key).clamp(smallest, self.max_distance) - smallest,)

    def relative_logits(self, q: Tensor) -> tuple[Tensor, ...]:
        return (per_head_logits(q, self.table),)  # [B, H, Q, vectors]

    def relative_vectors(self, farthest: int, nearest: int) -> Tensor:
        longest, smallest = self.max_distance, 0 if self.causal else -self.max_distance
        table = self.table[
            :, max(nearest, smallest) - smallest : min(farthest, longest) - smallest + 1
        ]
        # Repeated by `expand`: indexing would add up its gradient vector by vector.
        vectors = torch.cat(
            [
                self.table[:, -1:].expand(-1, max(0, farthest - longest), -1),
                table.flip(1),
                self.table[:, :1].expand(-1, max(0, smallest - nearest), -1),
            ],
            dim=1,
        )
        return vectors.unsqueeze(1)  # [H, 1, n, E]

    def sharing_key(self) -> Hashable:
        return type(self), self.max_distance, self.window, self.causal

    def n_slots(self, max_length: int, lookahead: int = 0) -> int:
        return max_length if self.window is None else min(self.window + lookahead, max_length)
