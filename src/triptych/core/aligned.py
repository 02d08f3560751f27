"""A decoder beside an encoder that reads one value per step of time, and where both are in time."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from triptych.core.positions import SinusoidalEmbedding, exact


@dataclass(frozen=True)
class Alignment:
    """What decoding keeps of the times of its positions."""

    times: Tensor
    """Of the positions so far: int64 [B, L]."""
    steps: Tensor
    """The memory of each step of the encoder, then zeros: [B, K + 1, D]."""


class AlignedMemory(nn.Module):
    """What a decoder's position gets from the encoder's step in which it lies: [B, P, D].

    The time of position i is the sum of the durations of values 0 to i-1, in steps of the encoder.
    It gives sinusoids, as the encoder's steps have them, and a linear map of the memory at its
    step, zeros at first. Cross-attention reads the other steps; from the sinusoids alone it learns
    which ones are near only after thousands of updates.

    durations: int64 [V], of each value. step: duration of a step of the encoder's sequence.
    """

    def __init__(self, durations: Tensor, step: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("durations", durations, persistent=False)  # [V]
        self.step = step
        self.encoding = SinusoidalEmbedding(d_model)
        self.proj = nn.Linear(d_model, d_model, bias=False)
        nn.init.zeros_(self.proj.weight)

    durations: Tensor

    def forward(self, values: Tensor, memory: Tensor, real: Tensor | None) -> Tensor:
        """Inputs of positions 0..P from the values at 0 to P-1: [B, P + 1, D].

        values: int64 [B, P]. memory: [B, K, D]. real: bool [B, K], False on padding; None for none.
        """
        return self._at(self._times(values), self._steps(memory, real))

    def start(self, batch: int, length: int, memory: Tensor, real: Tensor | None) -> Alignment:
        """The memory, and room for the times of `length` positions."""
        return Alignment(self.durations.new_zeros(batch, length), self._steps(memory, real))

    def prefill(self, values: Tensor, kept: Alignment) -> Tensor:
        """As `forward` with the memory that is kept; keeps the times: [B, P + 1, D]."""
        times = self._times(values)  # [B, P + 1]
        kept.times[:, : times.shape[1]] = times
        return self._at(times, kept.steps)

    def at_step(self, values: Tensor, positions: Tensor, kept: Alignment) -> Tensor:
        """Inputs of positions int64 [P] from the values before them, int64 [B, P]: [B, P, D]."""
        before = kept.times.index_select(1, positions[:1] - 1)  # [B, 1]
        times = before + self.durations[values].cumsum(1)  # [B, P]
        kept.times.index_copy_(1, positions, times)
        return self._at(times, kept.steps)

    def _times(self, values: Tensor) -> Tensor:
        """Times of positions 0..P, int64 [B, P + 1], from the values at 0 to P-1."""
        return nn.functional.pad(self.durations[values].cumsum(1), (1, 0))  # [B, P + 1]

    def _steps(self, memory: Tensor, real: Tensor | None) -> Tensor:
        """The memory with zeros for padding and for all times after its end: [B, K + 1, D]."""
        if real is not None:
            memory = memory.masked_fill(~real.unsqueeze(-1), 0)
        return nn.functional.pad(memory, (0, 0, 0, 1))  # [B, K + 1, D]

    def _at(self, times: Tensor, steps: Tensor) -> Tensor:
        """Inputs at times int64 [B, P]: [B, P, D]."""
        index = (times // self.step).clamp(max=steps.shape[1] - 1)  # [B, P]
        here = steps.gather(1, index.unsqueeze(-1).expand(-1, -1, steps.shape[2]))  # [B, P, D]
        inputs: Tensor = self.proj(here) + self.encoding(exact(times) / self.step).to(here.dtype)
        return inputs
