"""Relative attention of notes: learned vectors per distance, per time and per pitch interval.

Where the voices of a time step follow one another, the distance in the sequence says little about
two notes. Their distances in time and in pitch are added to the relative logits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.mask import MaskPattern, SlidingWindow
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative_bias import TokenBias
from triptych.types import PositiveInt


@dataclass(frozen=True)
class PitchTime(AttentionConfig):
    """Distances, times and intervals (Huang et al. 2018, Music Transformer, JSB chorales)."""

    causal_only = True

    max_distance: PositiveInt = 256
    """Longest distance with a vector of its own, in positions; longer ones share that vector."""
    n_voices: PositiveInt = 4
    """Number of voices, which is the number of positions of one time step."""
    max_time: PositiveInt = 64
    """Longest time with a vector of its own, in time steps; longer ones share that vector."""
    n_pitches: PositiveInt = 46
    """Number of pitches: token ids 0 to n_pitches - 1, a semitone apart; others are no pitch."""
    ids_per_pitch: PositiveInt = 1
    """Number of token ids of each pitch: 2 where ids from n_pitches to 2 n_pitches - 1 are the same
    pitches again, held ones (`AttackTokenizer`)."""

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return SlidingWindow(causal)

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> TokenBias:
        return PitchTimeBias(self, n_heads, d_head)


class PitchTimeBias(TokenBias):
    """bias[i, j] = q_i . (d[i - j] + t[time from note j to note i] + p[interval]), per head.

    Position i predicts note i and has read note i - 1. The time goes from the note read at j to
    the note predicted at i, in time steps. The interval goes from the pitch read at i to the pitch
    read at j. Two more vectors serve keys and queries that have read no pitch.
    """

    def __init__(self, config: PitchTime, n_heads: int, d_head: int) -> None:
        super().__init__()
        self.max_distance, self.max_time = config.max_distance, config.max_time
        self.period, self.n_pitches = config.n_voices, config.n_pitches
        self.n_ids = self.n_pitches * config.ids_per_pitch
        self.n_token_classes = self.n_pitches + 1

        def table(n: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(n_heads, n, d_head) * d_head**-0.5)

        self.distance = table(self.max_distance + 1)
        self.time = table(self.max_time + 1)
        self.interval = table(2 * self.n_pitches + 1)
        pitch = torch.arange(self.n_pitches)
        intervals = pitch - pitch.unsqueeze(1) + self.n_pitches - 1  # [from, to]
        no_key, no_query = 2 * self.n_pitches - 1, 2 * self.n_pitches
        intervals = F.pad(intervals, (0, 0, 0, 1), value=no_query)
        intervals = F.pad(intervals, (0, 1), value=no_key)  # [n_pitches + 1, n_pitches + 1]
        self.register_buffer("intervals", intervals, persistent=False)

    intervals: Tensor

    def tables(self) -> tuple[nn.Parameter, ...]:
        return self.distance, self.time

    def index(self, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        distance = (query - key).clamp(0, self.max_distance)
        time = query // self.period - (key - 1).div(self.period, rounding_mode="floor")
        return distance, time.clamp(0, self.max_time)

    def token_classes(self, token_ids: Tensor) -> Tensor:
        """The pitch, or n_pitches for token ids that are no pitch."""
        is_pitch = (token_ids >= 0) & (token_ids < self.n_ids)
        return torch.where(is_pitch, token_ids % self.n_pitches, self.n_pitches)

    def token_table(self) -> nn.Parameter:
        return self.interval

    def token_index(self, query: Tensor, key: Tensor) -> Tensor:
        return self.intervals[query, key]
