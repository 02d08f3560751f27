"""The decoder-only model: each value is predicted from the values before it."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.embeddings import ValueEmbedding
from triptych.core.heads import Head, PastTerm
from triptych.core.models.base import (
    NO_CONDITION,
    AutoregressiveModel,
    Condition,
    Conditioner,
    TransformerModel,
)
from triptych.core.state import NO_CONTEXT, DecodingState, ForwardContext
from triptych.core.transformer import Stack


class CausalModel(AutoregressiveModel):
    """p(values | condition); a training pass predicts every value from those before it.

    Values are int64 [B, L, *value_shape]; previous: int64 [B], the value before them, -1 for none.
    """

    @abstractmethod
    def features(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        """The output from which the head predicts every value: [B, L, D]."""

    @abstractmethod
    def condition(self, *inputs: Any) -> Condition:
        """What the model makes of the inputs of its condition."""

    def forward(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        """Parameters of the head that predict every value: [B, L, Z]."""
        parameters: Tensor = self.head(self.features(values, previous, condition))  # [B, L, Z]
        return parameters

    def nll(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        """Negative log-likelihood of each position, in nats: [B, L]."""
        return self.head.losses(self.features(values, previous, condition), values)


@dataclass(frozen=True)
class Kept:
    """What a `DecoderOnly` keeps of the positions so far beside its layers."""

    condition: Any
    """Of `Conditioner.start`."""
    read: Tensor | None
    """Values that the positions have read, int64 [B, L(, C)], -1 for none; None without a term."""


class DecoderOnly(TransformerModel, CausalModel):
    """p(x_0, ..., x_{L-1}) as a product over positions of p(x_t | x_0, ..., x_{t-1}).

    The input at position t is the value at t-1; at position 0 it is a learned start vector, or the
    value before the sequence (`previous`). Values are int64 [B, L], or [B, L, C] where a position
    is a whole pixel. No other decoder-only code shifts values.

    embedding: (values [B, L, ...], index [L] of the values) -> [B, L, D].
    positions: index int64 [L] -> [L, D].
    conditioner: makes the conditions of the model, with a memory exactly if the decoder has
    cross-attention; None for the base class, which adds the vectors of any condition.
    term: read from past values for the head; `features` are then [B, L, D + V]. `previous` is
    not among the values that it reads.
    Raises ValueError where the attention reads token ids and a position is a whole pixel.
    """

    def __init__(
        self,
        embedding: ValueEmbedding,
        positions: nn.Module,
        decoder: Stack,
        head: Head,
        *,
        d_model: int,
        dropout: float = 0.0,
        conditioner: Conditioner | None = None,
        term: PastTerm | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.decoder = decoder
        self.head = head
        self.start = nn.Parameter(torch.randn(d_model))
        self.dropout = nn.Dropout(dropout)
        self.conditioner = Conditioner() if conditioner is None else conditioner
        self.term = term
        self.reads_memory = any(block.cross is not None for block in decoder.blocks)
        self.value_shape = embedding.value_shape
        if decoder.uses_token_ids and self.value_shape:
            raise ValueError("what reads token ids needs one token per position, not a whole pixel")

    def features(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        kept = self.conditioner.start(condition, *values.shape[:2])
        context = ForwardContext(memory=condition.memory)
        x, context = self._inputs(values[:, :-1], previous, kept, context)  # [B, L, D]
        features: Tensor = self.decoder(x, context)  # [B, L, D]
        if self.term is None:
            return features
        index = torch.arange(values.shape[1], device=values.device)  # [L]
        term = self.term(self.past(values), index, self.conditioner.for_term(kept))  # [B, L, V]
        return torch.cat([features, term], dim=-1)  # [B, L, D + V]

    def past(self, values: Tensor) -> Tensor:
        """What the term reads at each position of values: int64 [B, L, R(, C)], -1 for none."""
        read = torch.cat([torch.full_like(values[:, :1], -1), values[:, :-1]], dim=1)  # [B, L(, C)]
        return self._past(torch.arange(values.shape[1], device=values.device), read)

    def condition(self, *inputs: Any) -> Condition:
        condition: Condition = self.conditioner(*inputs)
        return condition

    def init_state(
        self, batch: int, max_length: int, condition: Condition = NO_CONDITION, lookahead: int = 0
    ) -> DecodingState[Any]:
        if self.reads_memory != (condition.memory is not None):
            raise ValueError(
                "a decoder needs the memory of an encoder exactly if it has cross-attention"
            )
        context = ForwardContext(memory=condition.memory)
        empty = self.decoder.init_state(batch, max_length, context, lookahead=lookahead)
        length = max_length + lookahead
        kept = self.conditioner.start(condition, batch, length)
        read = None
        if self.term is not None:
            shape = batch, length, *self.value_shape
            read = torch.full(shape, -1, device=self.start.device)  # [B, L(, C)]
        return DecodingState(empty.layers, empty.memory, Kept(kept, read))

    def prefill(
        self, values: Tensor, state: DecodingState[Any], previous: Tensor | None = None
    ) -> Tensor:
        x, context = self._inputs(values, previous, state.own.condition)  # [B, P + 1, D]
        x = self.decoder(x, context, state)[:, -1:]  # [B, 1, D]
        if state.own.read is not None:
            state.own.read[:, 1 : 1 + values.shape[1]] = values
        # Not from a list, whose copy to a GPU would be a wait.
        last = torch.full((1,), values.shape[1], device=values.device)  # [1]
        parameters: Tensor = self.head(self.head_inputs(x, last, state))[:, 0]  # [B, Z]
        return parameters

    def step_inputs(
        self, values: Tensor, positions: Tensor, encodings: Tensor, state: DecodingState[Any]
    ) -> Tensor:
        x = self.embedding(values, positions - 1)  # [B, P, D]
        if state.own.read is not None:
            state.own.read.index_copy_(1, positions, values)
        vectors = self.conditioner.step_vectors(values, positions, state.own.condition)
        return self.add_positions(x, encodings, vectors)

    def head_inputs(self, x: Tensor, positions: Tensor, state: DecodingState[Any]) -> Tensor:
        if self.term is None:
            return x
        given = self.conditioner.for_term(state.own.condition)
        term = self.term(self._past(positions, state.own.read), positions, given)  # [B, P, V]
        return torch.cat([x, term], dim=-1)  # [B, P, D + V]

    def _past(self, positions: Tensor, read: Tensor) -> Tensor:
        """What the term reads at positions [P]: [B, P, R(, C)]; read: as in `Kept`."""
        assert self.term is not None
        places = self.term.read(positions)  # [P, R]
        none = (places < 0).view(*places.shape, *(1 for _ in self.value_shape))  # [P, R(, 1)]
        return read[:, places.clamp(min=0)].masked_fill(none, -1)  # [B, P, R(, C)]

    def _inputs(
        self,
        values: Tensor,
        previous: Tensor | None,
        kept: Any,
        context: ForwardContext = NO_CONTEXT,
    ) -> tuple[Tensor, ForwardContext]:
        """Inputs [B, P + 1, D] and context of positions 0..P; kept: of `Conditioner.start`."""
        index = torch.arange(values.shape[1] + 1, device=values.device)  # [P + 1]
        first = self.start.expand(values.shape[0], 1, -1)  # [B, 1, D]
        if previous is not None:
            before = self.embedding(previous.clamp(min=0).unsqueeze(1), index[:1])  # [B, 1, D]
            first = torch.where((previous < 0).view(-1, 1, 1), first, before)
        later = self.embedding(values, index[:-1])  # [B, P, D]
        x = torch.cat([first.to(later.dtype), later], dim=1)  # [B, P + 1, D]
        if self.decoder.uses_token_ids:
            none = values.new_full((len(values), 1), -1)
            before_first = none if previous is None else previous.unsqueeze(1)  # [B, 1]
            context = replace(context, token_ids=torch.cat([before_first, values], dim=1))
        vectors = self.conditioner.first_vectors(values, kept)
        return self.add_positions(x, self.positions(index), vectors), context
