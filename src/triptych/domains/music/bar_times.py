"""What a model of music by bars is told of time: which bar it is, and the place in it."""

import math

import torch
from torch import Tensor, nn

from triptych.domains.music.history import History, HistoryConditioner
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.domains.music.tokenizers.remi_grammar import Kind

PERIODS = *(2.0**n for n in range(-4, 7)), 1 / 3, 1 / 6, 1 / 12
"""Periods of the sinusoids, in bars: from a sixteenth and a triplet of 4/4 to 64 bars."""


class BarTimes(HistoryConditioner):
    """Tells the inputs the time in bars, as sinusoids of it.

    Position i gets the time after tokens 0 to i-1: the number of bars that have begun, and the
    place in the last one, in bars of its own length. Bars have any number of tokens, so that
    distances of tokens do not say what is a bar or eight bars ago; differences of phases do.
    """

    def __init__(self, tokenizer: RemiTokenizer, d_model: int) -> None:
        super().__init__(2 * len(PERIODS), d_model)
        meaning = tokenizer.meaning
        self.whole = 4 * meaning.per_quarter  # length of a bar whose signature is not known
        self.register_buffer("kinds", torch.from_numpy(meaning.kind), persistent=False)  # [V]
        self.register_buffer("numbers", torch.from_numpy(meaning.number), persistent=False)  # [V]
        rates = 2 * math.pi / torch.tensor(PERIODS)  # [F]
        self.register_buffer("rates", rates, persistent=False)

    kinds: Tensor
    numbers: Tensor
    rates: Tensor

    def first_vectors(self, values: Tensor, kept: History) -> Tensor:
        kept.values[:, : values.shape[1]] = values
        return self._vectors(values, None)  # [B, P + 1, D]

    def step_vectors(self, values: Tensor, positions: Tensor, kept: History) -> Tensor:
        return self._vectors(self.read(values, positions, kept), positions)  # [B, P, D]

    def _vectors(self, values: Tensor, positions: Tensor | None) -> Tensor:
        """Vectors [B, P, D] at positions [P], None for 0..N, from the values [B, N] before each."""
        kind, number = self.kinds[values], self.numbers[values]  # [B, N] each
        is_bar = kind == Kind.Bar
        marked = [is_bar | (kind == Kind.New), kind == Kind.TimeSig, kind == Kind.Position]
        order = torch.arange(1, values.shape[1] + 1, device=values.device)  # [N]
        marks = order * torch.stack(marked)  # [3, B, N]
        if positions is None:
            marks = nn.functional.pad(marks, (1, 0)).cummax(-1).values  # [3, B, N + 1]
            bars = nn.functional.pad(is_bar.cumsum(1), (1, 0))  # [B, N + 1]
        else:
            before = order <= positions.unsqueeze(1)  # [P, N]
            marks = (marks.unsqueeze(2) * before).amax(-1)  # [3, B, P]
            bars = (is_bar.unsqueeze(1) & before).sum(-1)  # [B, P]
        begin, meter, place = marks
        number = nn.functional.pad(number, (1, 0))  # [B, N + 1], where there is no mark
        length, inside = number.gather(1, meter), number.gather(1, place)  # [B, P] each
        length = torch.where(meter > 0, length, self.whole)  # [B, P]
        times = bars + torch.where(place > begin, inside, 0) / length  # [B, P]
        phases = times.unsqueeze(2) * self.rates  # [B, P, F]
        sinusoids = torch.cat([phases.sin(), phases.cos()], dim=-1)  # [B, P, 2 F]
        vectors: Tensor = self.proj(sinusoids.to(self.proj.weight.dtype))  # [B, P, D]
        return vectors
