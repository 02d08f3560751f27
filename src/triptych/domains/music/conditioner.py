"""Condition of a model that accompanies a melody: its encoder, and where a token lies in it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from triptych.core.conditioner import Condition, Conditioner, Memory
from triptych.core.models.encoder import SequenceEncoder
from triptych.core.positions import SinusoidalEmbedding, exact
from triptych.domains.music.melody import PADDING
from triptych.domains.music.tokenizers.base import MELODY_REST


@dataclass(frozen=True)
class Alignment:
    """What decoding keeps of the times of its positions."""

    times: Tensor
    """Of the positions so far: int64 [B, L]."""
    steps: Tensor
    """The memory of each step of the melody, then zeros: [B, K + 1, D]."""


class MelodyConditioner(Conditioner):
    """The memory of a melody, and what a token gets from the step of it in which the token lies.

    The time of position i is the sum of the durations of values 0 to i-1, in steps of the melody.
    It gives sinusoids, as the encoder's steps have them, and a linear map of the memory at its
    step, zeros at first. Cross-attention reads the other steps; from the sinusoids alone it learns
    which ones are near only after thousands of updates.

    encoder: of the symbols of a melody. durations: int64 [V], of each token. step: duration of a
    step of the melody.
    """

    def __init__(
        self, encoder: SequenceEncoder, durations: Tensor, step: int, d_model: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("durations", durations, persistent=False)  # [V]
        self.step = step
        self.encoding = SinusoidalEmbedding(d_model)
        self.proj = nn.Linear(d_model, d_model, bias=False)
        nn.init.zeros_(self.proj.weight)

    durations: Tensor

    def forward(self, melody: Tensor) -> Condition:
        """Return the condition of melodies int64 [B, K] of `padded`."""
        padding = melody == PADDING
        real = ~padding
        features = self.encoder(melody.masked_fill(padding, MELODY_REST), real)  # [B, K, D]
        return Condition(memory=Memory(features, real))

    def start(self, condition: Condition, batch: int, length: int) -> Alignment:
        """Return the memory, and room for the times of `length` positions."""
        assert condition.memory is not None
        steps, real = condition.memory.features, condition.memory.real
        if real is not None:
            steps = steps.masked_fill(~real.unsqueeze(-1), 0)
        # Zeros for padding and for all times after the end.
        steps = nn.functional.pad(steps, (0, 0, 0, 1))  # [B, K + 1, D]
        return Alignment(self.durations.new_zeros(batch, length), steps)

    def first_vectors(self, values: Tensor, kept: Alignment) -> Tensor:
        times = nn.functional.pad(self.durations[values].cumsum(1), (1, 0))  # [B, P + 1]
        kept.times[:, : times.shape[1]] = times
        return self._at(times, kept.steps)

    def step_vectors(self, values: Tensor, positions: Tensor, kept: Alignment) -> Tensor:
        before = kept.times.index_select(1, positions[:1] - 1)  # [B, 1]
        times = before + self.durations[values].cumsum(1)  # [B, P]
        kept.times.index_copy_(1, positions, times)
        return self._at(times, kept.steps)

    def _at(self, times: Tensor, steps: Tensor) -> Tensor:
        """Return the vectors at times int64 [B, P]: [B, P, D]."""
        index = (times // self.step).clamp(max=steps.shape[1] - 1)  # [B, P]
        here = steps.gather(1, index.unsqueeze(-1).expand(-1, -1, steps.shape[2]))  # [B, P, D]
        vectors: Tensor = self.proj(here) + self.encoding(exact(times) / self.step).to(here.dtype)
        return vectors
