"""Relative attention of notes: learned vectors per distance, per time and per pitch interval.

Where the voices of a time step follow one another, the distance in the sequence says little about
two notes. Their distances in time and in pitch are added to the relative logits.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import KeySpan, MaskPattern, per_head_logits
from triptych.core.attention.multihead import MultiHeadAttention, head_width


@dataclass(frozen=True)
class PitchTime(AttentionConfig):
    """Distances, times and intervals (Huang et al. 2018, Music Transformer, JSB chorales)."""

    supports_rotary = False

    max_distance: int = 256
    """Longest distance with a vector of its own, in positions; longer ones share that vector."""
    n_voices: int = 4
    """Number of voices, which is the number of positions of one time step."""
    max_time: int = 64
    """Longest time with a vector of its own, in time steps; longer ones share that vector."""
    n_pitches: int = 46
    """Number of pitches: token ids 0 to n_pitches - 1, a semitone apart; others are no pitch."""

    def __post_init__(self) -> None:
        for name in ("max_distance", "n_voices", "max_time", "n_pitches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> MultiHeadAttention:
        if not causal:
            raise ValueError("pitch-time attention is causal; an encoder cannot use it")
        pattern = PitchTimePattern(
            n_heads,
            head_width(d_model, n_heads),
            max_distance=self.max_distance,
            n_voices=self.n_voices,
            max_time=self.max_time,
            n_pitches=self.n_pitches,
        )
        return MultiHeadAttention(d_model, n_heads, pattern)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls(max_distance=32, n_voices=4, max_time=8, n_pitches=6), (13,)),
            # Longer than the longest distance and time.
            Example(cls(max_distance=5, n_voices=2, max_time=3, n_pitches=6), (13,)),
            Example(cls(max_distance=5, n_voices=1, max_time=20, n_pitches=20), (13,)),
        ]


class PitchTimePattern(MaskPattern):
    """bias[i, j] = q_i . (d[i - j] + t[time from note j to note i] + p[interval]), per head.

    Position i predicts note i and has read note i - 1. The time goes from the note read at j to
    the note predicted at i, in time steps. The interval goes from the pitch read at i to the pitch
    read at j. Two more vectors serve keys and queries that have read no pitch.
    """

    uses_token_ids = True

    def __init__(
        self,
        n_heads: int,
        d_head: int,
        *,
        max_distance: int,
        n_voices: int,
        max_time: int,
        n_pitches: int,
    ) -> None:
        super().__init__()
        self.max_distance, self.max_time = max_distance, max_time
        self.query_period = n_voices
        self.n_pitches = n_pitches

        def table(n: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(n_heads, n, d_head) * d_head**-0.5)

        self.distance = table(max_distance + 1)
        self.time = table(max_time + 1)
        self.interval = table(2 * n_pitches + 1)
        pitch = torch.arange(n_pitches)
        intervals = pitch - pitch.unsqueeze(1) + n_pitches - 1  # [from, to]
        no_key, no_query = 2 * n_pitches - 1, 2 * n_pitches
        intervals = F.pad(intervals, (0, 0, 0, 1), value=no_query)
        intervals = F.pad(intervals, (0, 1), value=no_key)  # [n_pitches + 1, n_pitches + 1]
        self.register_buffer("intervals", intervals, persistent=False)

    intervals: Tensor

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    def key_span(self, first: int, stop: int, length: int) -> KeySpan:
        return KeySpan(0, 0, first + 1, stop)

    def sharing_key(self) -> Hashable:
        return type(self), self.max_distance, self.max_time, self.query_period, self.n_pitches

    def relative_index(self, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        distance = (query - key).clamp(0, self.max_distance)
        n_voices = self.query_period
        time = query // n_voices - (key - 1).div(n_voices, rounding_mode="floor")
        return distance, time.clamp(0, self.max_time)

    def relative_logits(self, q: Tensor) -> tuple[Tensor, ...]:
        return per_head_logits(q, self.distance), per_head_logits(q, self.time)

    def relative_vectors(self, farthest: int, nearest: int) -> Tensor:
        # With i = a T + t the note read at i - d belongs to time step floor((i - d - 1) / T).
        distance = torch.arange(farthest, nearest - 1, -1, device=self.distance.device)  # [n]
        voice = torch.arange(self.query_period, device=distance.device).unsqueeze(1)  # [T, 1]
        time = (distance + self.query_period - voice).div(self.query_period, rounding_mode="floor")
        by_time = self.time[:, time.clamp(max=self.max_time)]  # [H, T, n, E]
        return by_time + self.distance[:, None, distance.clamp(max=self.max_distance)]

    def token_features(self, q: Tensor, k: Tensor, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        """q gets the logit of each pitch that a key may have, k the one-hot code of its pitch.

        So no tensor holds an interval for each pair of positions.
        """
        pitches = self.token_classes(token_ids)  # [B, L]
        logits = self._pitch_logits(q, pitches)  # [B, H, Q, n_pitches + 1]
        one_hot = F.one_hot(pitches, self.n_pitches + 1).to(k.dtype)  # [B, K, n_pitches + 1]
        one_hot = one_hot.unsqueeze(1).expand(-1, k.shape[1], -1, -1)  # [B, H, K, n_pitches + 1]
        return torch.cat([q, logits], dim=-1), torch.cat([k, one_hot], dim=-1)

    def token_bias(self, q: Tensor, query_classes: Tensor, key_classes: Tensor) -> Tensor:
        logits = self._pitch_logits(q, query_classes)  # [B, H, Q, n_pitches + 1]
        index = key_classes[:, None, None].expand(*q.shape[:3], -1)  # [B, H, Q, K]
        return logits.gather(-1, index)

    def token_classes(self, token_ids: Tensor) -> Tensor:
        """The pitch, or n_pitches for token ids that are no pitch."""
        return token_ids.clamp(-1, self.n_pitches) % (self.n_pitches + 1)

    def _pitch_logits(self, q: Tensor, pitches: Tensor) -> Tensor:
        """Logit of each pitch of a key: q [B, H, Q, E], pitches [B, Q] -> [B, H, Q, pitches]."""
        index = self.intervals[pitches]  # [B, Q, n_pitches + 1]
        index = index.unsqueeze(1).expand(-1, q.shape[1], -1, -1)  # [B, H, Q, n_pitches + 1]
        return per_head_logits(q, self.interval).gather(-1, index)
