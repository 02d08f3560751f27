"""The interface that decoding needs from a model, and what a model is conditioned on."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor, nn

from triptych.core.heads import Head
from triptych.core.state import DecodingState, Memory, Own, StepContext, map_tensors, tensors_of
from triptych.core.transformer import Stack


@dataclass(frozen=True)
class Condition:
    """What predictions of a row depend on besides its values, of B rows; a model may extend it."""

    vectors: Tensor | None = None
    """Added to the inputs of the decoder: [B, 1, D] for all positions, or [B, L, D]."""
    memory: Memory | None = None

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
        """Vectors [B, 1 or P, D] at positions int64 [P], from the values before; None for none."""
        shared = kept is None or kept.shape[1] == 1
        vectors: Tensor | None = kept if shared else kept.index_select(1, positions)
        return vectors

    def for_term(self, kept: Any) -> Any:
        """What the model's `PastTerm` reads of the condition; None for nothing."""
        return None


class AutoregressiveModel(nn.Module, ABC):
    """A model that predicts each value from those before it, and keeps a state between steps.

    Sampling and beam search use this interface alone. Invariant: `prefill` of values 0..P-1
    and then steps give the same predictions as one pass over all values.
    """

    head: Head
    """Output distribution of a position."""
    value_shape: tuple[int, ...] = ()
    """Shape of one position's value: () for a token, (C,) for a pixel of C channels."""

    @abstractmethod
    def init_state(
        self, batch: int, max_length: int, condition: Condition = NO_CONDITION, lookahead: int = 0
    ) -> DecodingState[Any]:
        """Storage for predictions of at most `max_length` positions under a condition of B rows.

        lookahead: as in `MultiHeadAttention.init_cache`.
        """

    @abstractmethod
    def prefill(
        self, values: Tensor, state: DecodingState[Any], previous: Tensor | None = None
    ) -> Tensor:
        """Read values 0..P-1 (P may be 0) into an empty state and predict value P.

        values int64 [B, P, *value_shape]; previous int64 [B]: the value before the first one ->
        parameters of the head [B, Z], Z numbers per position.
        """

    @abstractmethod
    def step(
        self, values: Tensor, positions: Tensor, state: DecodingState[Any], context: Any = None
    ) -> Tensor:
        """Read the values before P consecutive positions and predict the values at them.

        values int64 [B, P, *value_shape]; positions int64 [P], on the device. P above 1, or a
        position that was already read (it is overwritten), is allowed only within the lookahead.
        context: the element of `step_contexts` for a single position -> [B, P, Z].
        """

    def step_contexts(self, positions: Tensor, state: DecodingState[Any]) -> Sequence[Any]:
        """Contexts of R steps of one position each, int64 [R], computed at once; None if unused."""
        return [None] * len(positions)

    def state_view(self, state: DecodingState[Own], length: int) -> DecodingState[Own]:
        """Views of the part of the state that holds the first `length` positions."""
        return state


class TransformerModel(AutoregressiveModel):
    """An autoregressive model over a causal `Stack`, whose state it keeps."""

    decoder: Stack
    positions: nn.Module
    """Position encodings: index int64 [L] -> [L, D]."""
    dropout: nn.Dropout

    def add_positions(self, x: Tensor, encodings: Tensor, vectors: Tensor | None = None) -> Tensor:
        """Inputs of a stack: x [B, L, D], encodings [L, D], vectors of a condition -> [B, L, D]."""
        x = x + encodings.to(x.dtype)
        if vectors is not None:
            x = x + vectors.to(x.dtype)
        x = self.dropout(x)
        return x

    @abstractmethod
    def step_inputs(
        self, values: Tensor, positions: Tensor, encodings: Tensor, state: DecodingState[Any]
    ) -> Tensor:
        """Inputs [B, P, D] at positions [P] from the values before and the encodings [P, D]."""

    def step(
        self, values: Tensor, positions: Tensor, state: DecodingState[Any], context: Any = None
    ) -> Tensor:
        if context is None:
            context = self._step_context(positions, state)
        assert context.encodings is not None
        x = self.step_inputs(values, positions, context.encodings, state)  # [B, P, D]
        if self.decoder.uses_token_ids:
            context = replace(context, token_ids=values)
        x = self.decoder.step(x, state, context)  # [B, P, D]
        parameters: Tensor = self.head(self.head_inputs(x, positions, state))  # [B, P, Z]
        return parameters

    def head_inputs(self, x: Tensor, positions: Tensor, state: DecodingState[Any]) -> Tensor:
        """What the head reads at positions [P] of the decoder's output [B, P, D]: [B, P, ...]."""
        return x

    def step_contexts(self, positions: Tensor, state: DecodingState[Any]) -> list[StepContext]:
        together = self._step_context(positions.unsqueeze(1), state)
        return [together.at(step) for step in range(len(positions))]

    def _step_context(self, positions: Tensor, state: DecodingState[Any]) -> StepContext:
        context = self.decoder.step_context(positions, state)
        return replace(context, encodings=self.positions(positions))  # [..., P, D]

    def state_view(self, state: DecodingState[Own], length: int) -> DecodingState[Own]:
        return self.decoder.state_view(state, length)

    def bytes_per_position(self) -> int:
        """Size of the cache of one position of one row, in bytes."""
        return sum(tensor.nbytes for tensor in tensors_of(self.decoder.init_state(1, 1)))


def added(*vectors: Tensor | None) -> Tensor | None:
    """The sum of vectors [B, 1, D] or [B, L, D] without those that are None; None for none."""
    given = [each for each in vectors if each is not None]
    return sum(given[1:], given[0]) if given else None


def inverted(padding: Tensor | None) -> Tensor | None:
    """The mask of real positions from that of padding; None for no padding."""
    return None if padding is None else ~padding
