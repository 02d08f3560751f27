"""Relative attention that also relates notes: learned vectors per interval and per time between.

A note's place in the sequence says little where voices stand one after another: what matters is how
far apart two notes are in time and in pitch. Both are added to the relative logits.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.backends.skew import Distances
from triptych.core.attention.backends.spans import Reach, queries_per_tile, tiles_over
from triptych.core.attention.backends.tiled import attend_in_tiles
from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import MaskPattern, by_head
from triptych.core.attention.multihead import MultiHeadAttention, head_width


@dataclass(frozen=True)
class PitchTime(AttentionConfig):
    """Distances, times and intervals (Huang et al. 2018, Music Transformer, JSB chorales)."""

    max_distance: int = 256
    """Longest distance with a vector of its own, in positions; farther ones share that vector."""
    step: int = 4
    """Positions that sound together: the voices of one time step."""
    max_time: int = 64
    """Longest time with a vector of its own, in time steps; longer ones share that vector."""
    scale: int = 46
    """Symbols 0 to scale - 1 are pitches a semitone apart; all others, as rests, are no pitch."""

    def __post_init__(self) -> None:
        for name in ("max_distance", "step", "max_time", "scale"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> MultiHeadAttention:
        if not causal:
            raise ValueError("pitch and time are related in causal attention only")
        pattern = PitchTimePattern(
            n_heads,
            head_width(d_model, n_heads),
            max_distance=self.max_distance,
            step=self.step,
            max_time=self.max_time,
            scale=self.scale,
        )
        return MultiHeadAttention(d_model, n_heads, pattern)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls(max_distance=32, step=4, max_time=8, scale=6), (13,)),
            Example(cls(max_distance=5, step=2, max_time=3, scale=6), (13,)),  # beyond both
            Example(cls(max_distance=5, step=1, max_time=20, scale=20), (13,)),
        ]


class PitchTimePattern(MaskPattern):
    """bias[i, j] = q_i . (d[i - j] + t[time from the value at j to i] + p[interval]), a head each.

    Position i predicts value i and has read value i - 1. The time goes from that of the value read
    at j to that of the value predicted at i; the interval from the pitch read at i to that at j.
    Two more vectors stand for a key and for a query that read no pitch.
    """

    reads_symbols = True

    def __init__(
        self, n_heads: int, d_head: int, *, max_distance: int, step: int, max_time: int, scale: int
    ) -> None:
        super().__init__()
        self.max_distance, self.max_time = max_distance, max_time
        self.phases, self.scale = step, scale

        def table(n: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(n_heads, n, d_head) * d_head**-0.5)

        self.distance = table(max_distance + 1)
        self.time = table(max_time + 1)
        self.interval = table(2 * scale + 1)
        pitch = torch.arange(scale)
        intervals = pitch - pitch.unsqueeze(1) + scale - 1  # [from, to]
        no_key, no_query = 2 * scale - 1, 2 * scale
        intervals = F.pad(intervals, (0, 0, 0, 1), value=no_query)
        intervals = F.pad(intervals, (0, 1), value=no_key)  # [scale + 1, scale + 1]
        self.register_buffer("intervals", intervals, persistent=False)

    intervals: Tensor

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    def kind(self) -> Hashable:
        return type(self), self.max_distance, self.max_time, self.phases, self.scale

    def relation(self, query: Tensor, key: Tensor) -> Tensor:
        """The vectors of distance and of time of each pair: int64 [2, ..., Q, K]."""
        distance = (query - key).clamp(min=0)
        time = query // self.phases - (key - 1).div(self.phases, rounding_mode="floor")
        return torch.stack(
            [
                distance.clamp(max=self.max_distance),
                time.clamp(0, self.max_time),
            ]
        )

    def bias(self, q: Tensor, relation: Tensor | None) -> Tensor:
        assert relation is not None
        by_distance, by_time = (
            by_head(q, vectors).gather(-1, part.unsqueeze(-3).expand(*q.shape[:3], -1))
            for vectors, part in zip((self.distance, self.time), relation, strict=True)
        )
        return by_distance + by_time  # [B, H, Q, K]

    def with_symbols(self, q: Tensor, k: Tensor, symbols: Tensor) -> tuple[Tensor, Tensor]:
        """One logit for each pitch that a key may have joins q, which of them it is joins k.

        So q k^T holds the interval's part too, and no tensor has Q x K intervals.
        """
        pitches = self.noted(symbols)  # [B, L]
        by_pitch = self._by_pitch(q, pitches)  # [B, H, Q, scale + 1]
        which = F.one_hot(pitches, self.scale + 1).to(k.dtype)  # [B, K, scale + 1]
        which = which.unsqueeze(1).expand(-1, k.shape[1], -1, -1)  # [B, H, K, scale + 1]
        return torch.cat([q, by_pitch], dim=-1), torch.cat([k, which], dim=-1)

    def symbol_bias(self, q: Tensor, query_symbols: Tensor, key_symbols: Tensor) -> Tensor:
        by_pitch = self._by_pitch(q, query_symbols)  # [B, H, Q, scale + 1]
        index = key_symbols[:, None, None].expand(*q.shape[:3], -1)  # [B, H, Q, K]
        return by_pitch.gather(-1, index)

    def noted(self, symbols: Tensor) -> Tensor:
        """The pitch, and `scale` for what is none: below it -1, above it all."""
        return symbols.clamp(-1, self.scale) % (self.scale + 1)

    def _by_pitch(self, q: Tensor, pitches: Tensor) -> Tensor:
        """What each pitch of a key adds: q [B, H, Q, E], pitches [B, Q] -> [B, H, Q, scale + 1]."""
        index = self.intervals[pitches]  # [B, Q, scale + 1]
        index = index.unsqueeze(1).expand(-1, q.shape[1], -1, -1)  # [B, H, Q, scale + 1]
        return by_head(q, self.interval).gather(-1, index)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, dropout: float = 0.0
    ) -> Tensor:
        length = q.shape[2]
        tiles = tiles_over(Reach(), length, queries_per_tile(length, q), q.device)
        farthest = max(tile.stop - 1 - tile.start for tile in tiles)
        return attend_in_tiles(
            q,
            k,
            v,
            tiles,
            vectors=self._vectors(farthest).to(q.dtype),
            distances=Distances(farthest, 0, self.phases),
            padding=padding,
            dropout=dropout,
        )

    def _vectors(self, farthest: int) -> Tensor:
        """What distance and time add up to, for each place in a time step: [H, step, n, E].

        With i = a step + f the value read at i - d stands in step floor((i - d - 1) / step).
        """
        distance = torch.arange(farthest, -1, -1, device=self.distance.device)  # [n]
        place = torch.arange(self.phases, device=distance.device).unsqueeze(1)  # [step, 1]
        time = (distance + self.phases - place).div(self.phases, rounding_mode="floor")
        by_time = self.time[:, time.clamp(max=self.max_time)]  # [H, step, n, E]
        return by_time + self.distance[:, None, distance.clamp(max=self.max_distance)]
