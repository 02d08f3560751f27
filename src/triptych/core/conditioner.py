"""What a model is conditioned on, and what that contributes to a decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor, nn

from triptych.core.attention.context import ForwardContext
from triptych.core.state import map_tensors


@dataclass(frozen=True)
class Memory:
    """Output of an encoder, which cross-attention reads."""

    features: Tensor
    """[B, K, D]."""
    real: Tensor | None = None
    """Bool [B, K], False on padding; None for no padding."""


@dataclass(frozen=True)
class Condition:
    """What all predictions of a row depend on besides its values: tensors of B rows.

    A model that needs more of its source has a subclass.
    """

    vectors: Tensor | None = None
    """Added to the inputs of the decoder: [B, 1, D] for all positions, or [B, L, D]."""
    memory: Memory | None = None

    def context(self) -> ForwardContext:
        """The context of a pass that reads the memory."""
        if self.memory is None:
            return ForwardContext()
        return ForwardContext(memory=self.memory.features, memory_real=self.memory.real)

    def rows(self, rows: slice) -> Self:
        """The condition of some rows of the batch."""
        return map_tensors(self, lambda part: part[rows])

    def repeated(self, count: int) -> Self:
        """The condition of `count` copies of each row; they stand next to each other."""
        return map_tensors(self, lambda part: part.repeat_interleave(count, 0))


NO_CONDITION = Condition()
"""The condition of a model whose predictions depend on the values alone."""


class Conditioner(nn.Module):
    """Makes the conditions of a `DecoderOnly`, and gives its inputs the vectors of a condition.

    The `forward` of a subclass makes a `Condition` of what it reads: a class, a small picture, a
    melody. The vectors of most conditions are known before the first value. Where they depend on
    the values, as at the time in which a token of music lies, a subclass replaces the methods
    below, and `start` returns a dataclass of tensors: the model's own part of a `DecodingState`.
    """

    def start(self, condition: Condition, batch: int, length: int) -> Any:
        """What the vectors of `length` positions are made of; a row per row of the batch."""
        return condition.vectors

    def first_vectors(self, values: Tensor, kept: Any) -> Tensor | None:
        """Vectors of positions 0..P from the values at 0..P-1, int64 [B, P, ...]; None for none.

        kept: of `start`; it keeps what later steps need. Returns [B, 1, D] or [B, P + 1, D].
        """
        return None if kept is None else kept[:, : values.shape[1] + 1]

    def step_vectors(self, values: Tensor, positions: Tensor, kept: Any) -> Tensor | None:
        """Vectors of consecutive positions int64 [P] from the values before them, [B, P, ...].

        Returns [B, 1, D] or [B, P, D]; None for none.
        """
        if kept is None or kept.shape[1] == 1:
            vectors: Tensor | None = kept
        else:
            vectors = kept.index_select(1, positions)  # [B, P, D]
        return vectors
