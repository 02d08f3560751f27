"""The decoder-only model: values one after another, each predicted from those before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from triptych.core.embeddings import ValueEmbedding
from triptych.core.heads import Head
from triptych.core.transformer import Decoder, Places, State


class DecoderOnly(nn.Module):
    """p(x_0, ..., x_{L-1}) as a product over positions of p(x_t | x_0, ..., x_{t-1}).

    The input at position t is the value at t-1, at position 0 a learned start vector or the value
    that stands before the sequence (`previous`). Values are int64 [B, L], or [B, L, C] where a
    position holds a whole pixel. The shift is made here and nowhere else.

    embedding: (values [B, L, ...], index [L] of the values) -> [B, L, D];
    positions: index int64 [L] -> [L, D]; condition [B, D] is added at every position.
    """

    def __init__(
        self,
        embedding: ValueEmbedding,
        positions: nn.Module,
        decoder: Decoder,
        head: Head,
        *,
        d_model: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.decoder = decoder
        self.head = head
        self.start = nn.Parameter(torch.randn(d_model))
        self.dropout = nn.Dropout(dropout)
        if decoder.reads_symbols and embedding.value_shape:
            raise ValueError("attention to symbols needs one symbol a position, not a whole pixel")

    def forward(
        self, values: Tensor, previous: Tensor | None = None, condition: Tensor | None = None
    ) -> Tensor:
        """Parameters that predict every value: [B, L, P].

        previous: int64 [B], the value before the first one, -1 for none; default none.
        """
        x = self._inputs(values[:, :-1], previous, condition, batch=values.shape[0])  # [B, L, D]
        symbols = self._symbols(values[:, :-1], previous)
        parameters: Tensor = self.head(self.decoder(x, symbols=symbols))  # [B, L, P]
        return parameters

    def nll(
        self, values: Tensor, previous: Tensor | None = None, condition: Tensor | None = None
    ) -> Tensor:
        """Negative log-likelihood of each position, in nats: [B, L]."""
        return self.head.nll(self(values, previous, condition), values)

    def no_values(self, batch: int) -> Tensor:
        """The empty beginning of every sequence: int64 [B, 0], or [B, 0, C]."""
        size = (batch, 0, *self.embedding.value_shape)
        return torch.empty(size, dtype=torch.int64, device=self.start.device)

    def init_cache(self, batch: int, max_length: int, *, ahead: int = 0) -> State:
        """Storage to predict at most `max_length` positions; ahead: more than one at a time."""
        return self.decoder.init_cache(batch, max_length, ahead=ahead)

    def narrow(self, state: State, length: int) -> State:
        """Views of the state that hold the first `length` positions, as in `Decoder`."""
        return self.decoder.narrow(state, length)

    def places(self, positions: Tensor, state: State) -> list[Places]:
        """What steps at these positions need, as in `Decoder`."""
        return self.decoder.places(positions, state)

    def prefill(
        self,
        values: Tensor,
        state: State,
        previous: Tensor | None = None,
        condition: Tensor | None = None,
    ) -> Tensor:
        """Read values 0..P-1 (P may be 0) at once; parameters that predict value P: [B, Pp]."""
        x = self._inputs(values, previous, condition, batch=values.shape[0])  # [B, P + 1, D]
        symbols = self._symbols(values, previous)
        parameters: Tensor = self.head(self.decoder.prefill(x, state, symbols)[:, -1])  # [B, Pp]
        return parameters

    def step(
        self,
        value: Tensor,
        position: Tensor,
        state: State,
        condition: Tensor | None = None,
        places: Places | None = None,
    ) -> Tensor:
        """Read the value at position - 1 and predict the one at `position`.

        value int64 [B] (or [B, C]), position int64 [] on the device, at least 1 -> [B, Pp].
        places: as in `Decoder.step`.
        """
        parameters = self.extend(value.unsqueeze(1), position.view(1), state, condition, places)
        return parameters[:, 0]

    def extend(
        self,
        values: Tensor,
        positions: Tensor,
        state: State,
        condition: Tensor | None = None,
        places: Places | None = None,
    ) -> Tensor:
        """Read the values before some positions in a row, at once, and predict what stands there.

        values int64 [B, P] (or [B, P, C]); positions int64 [P], the first at least 1. They may
        begin before the last ones read, which are then forgotten. Both as far as the state's
        `ahead` allows -> [B, P, Pp].
        """
        x = self.embedding(values, positions - 1)  # [B, P, D]
        x = self._enter(x, positions, condition)
        symbols = values if self.decoder.reads_symbols else None
        parameters: Tensor = self.head(self.decoder.step(x, positions, state, symbols, places))
        return parameters

    def _symbols(self, values: Tensor, previous: Tensor | None) -> Tensor | None:
        """What positions 0..P read, where the attention asks: int64 [B, P + 1], -1 for nothing."""
        if not self.decoder.reads_symbols:
            return None
        first = values.new_full((len(values), 1), -1)
        return torch.cat([first if previous is None else previous.unsqueeze(1), values], dim=1)

    def _inputs(
        self, values: Tensor, previous: Tensor | None, condition: Tensor | None, *, batch: int
    ) -> Tensor:
        """Inputs of positions 0..P from the values at 0..P-1: [B, P + 1, D]."""
        index = torch.arange(values.shape[1] + 1, device=values.device)  # [P + 1]
        first = self.start.expand(batch, 1, -1)  # [B, 1, D]
        if previous is not None:
            before = self.embedding(previous.clamp(min=0).unsqueeze(1), index[:1])  # [B, 1, D]
            first = torch.where((previous < 0).view(-1, 1, 1), first, before)
        later = self.embedding(values, index[:-1])  # [B, P, D]
        return self._enter(torch.cat([first.to(later.dtype), later], dim=1), index, condition)

    def _enter(self, x: Tensor, index: Tensor, condition: Tensor | None) -> Tensor:
        x = x + self.positions(index)
        if condition is not None:
            x = x + condition.unsqueeze(1)
        y: Tensor = self.dropout(x)
        return y
