"""The decoder-only model: each value is predicted from the values before it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from triptych.core.aligned import AlignedMemory, Alignment
from triptych.core.attention.context import ForwardContext
from triptych.core.embeddings import ValueEmbedding
from triptych.core.heads import Head
from triptych.core.models.base import NO_CONDITION, Condition, TransformerModel, inverted
from triptych.core.models.encoder import SequenceEncoder
from triptych.core.state import DecodingState
from triptych.core.transformer import Decoder


@dataclass(frozen=True)
class Conditioning:
    """What steps need of the condition, beside the projected memory."""

    vector: Tensor | None
    """As in `Condition`."""
    alignment: Alignment | None


class DecoderOnly(TransformerModel):
    """p(x_0, ..., x_{L-1}) as a product over positions of p(x_t | x_0, ..., x_{t-1}).

    The input at position t is the value at t-1; at position 0 it is a learned start vector, or the
    value before the sequence (`previous`). Values are int64 [B, L], or [B, L, C] where a position
    is a whole pixel. No other decoder-only code shifts values.

    embedding: (values [B, L, ...], index [L] of the values) -> [B, L, D].
    positions: index int64 [L] -> [L, D].
    encoder: reads another sequence, such as a small picture or a melody, which the cross-attention
    of the decoder reads in turn; None for a decoder without cross-attention.
    aligned: for an encoder that reads a value per step of time. Cross-attention then starts at zero
    too, so that a new model is the one without the encoder: beside random cross-attention the
    decoder learned later to use its own past.
    Raises ValueError where the attention reads token ids and a position is a whole pixel.
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
        encoder: SequenceEncoder | None = None,
        aligned: AlignedMemory | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.decoder = decoder
        self.head = head
        self.start = nn.Parameter(torch.randn(d_model))
        self.dropout = nn.Dropout(dropout)
        self.encoder = encoder
        self.aligned = aligned
        if aligned is not None:
            for block in decoder.blocks:
                assert block.cross is not None
                nn.init.zeros_(block.cross.out_proj.weight)
        self.value_shape = embedding.value_shape
        if decoder.uses_token_ids and self.value_shape:
            raise ValueError(
                "attention that reads token ids needs one token per position, not a whole pixel"
            )

    def encode(
        self, sequence: Tensor, padding: Tensor | None = None, vector: Tensor | None = None
    ) -> Condition:
        """The condition of a sequence that the encoder reads.

        sequence: int64 [B, K, ...]; padding: bool [B, K], True on padding; vector: [B, D], as in
        `Condition`. Raises ValueError for a model without an encoder.
        """
        if self.encoder is None:
            raise ValueError("this model has no encoder, so no sequence can condition it")
        real = inverted(padding)
        return Condition(vector, self.encoder(sequence, real), real)

    def forward(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        """Parameters of the head that predict every value: [B, L, Z].

        previous: int64 [B], the value before the first one, -1 for none (the default).
        """
        parameters: Tensor = self.head(self.features(values, previous, condition))  # [B, L, Z]
        return parameters

    def features(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        """The decoder's output, from which the head predicts every value: [B, L, D]."""
        x, context = self._inputs(values[:, :-1], previous, condition)  # [B, L, D]
        features: Tensor = self.decoder(x, context)  # [B, L, D]
        return features

    def nll(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        """Negative log-likelihood of each position, in nats: [B, L]."""
        return self.head.losses(self.features(values, previous, condition), values)

    def init_state(
        self,
        batch: int,
        max_length: int,
        *,
        lookahead: int = 0,
        condition: Condition = NO_CONDITION,
    ) -> DecodingState[Conditioning]:
        if (self.encoder is None) != (condition.memory is None):
            raise ValueError("a model needs the memory of a sequence exactly if it has an encoder")
        context = condition.context()
        empty = self.decoder.init_state(batch, max_length, context, lookahead=lookahead)
        alignment = None
        if self.aligned is not None:
            assert condition.memory is not None
            memory = condition.memory, condition.memory_real
            alignment = self.aligned.start(batch, max_length + lookahead, *memory)
        return DecodingState(empty.layers, empty.memory, Conditioning(condition.vector, alignment))

    def prefill(
        self, values: Tensor, state: DecodingState[Conditioning], previous: Tensor | None = None
    ) -> Tensor:
        condition = Condition(vector=state.own.vector)
        x, context = self._inputs(values, previous, condition, state)  # [B, P + 1, D]
        parameters: Tensor = self.head(self.decoder(x, context, state)[:, -1])  # [B, Z]
        return parameters

    def step_inputs(
        self,
        values: Tensor,
        positions: Tensor,
        encodings: Tensor,
        state: DecodingState[Conditioning],
    ) -> Tensor:
        x = self.embedding(values, positions - 1)  # [B, P, D]
        if self.aligned is not None:
            assert state.own.alignment is not None
            x = x + self.aligned.at_step(values, positions, state.own.alignment).to(x.dtype)
        return self.add_positions(x, encodings, state.own.vector)

    def _inputs(
        self,
        values: Tensor,
        previous: Tensor | None,
        condition: Condition,
        state: DecodingState[Conditioning] | None = None,
    ) -> tuple[Tensor, ForwardContext]:
        """Inputs [B, P + 1, D] and context of positions 0..P, from the values at 0..P-1.

        state: of decoding, which keeps what later steps need of the inputs.
        """
        index = torch.arange(values.shape[1] + 1, device=values.device)  # [P + 1]
        first = self.start.expand(values.shape[0], 1, -1)  # [B, 1, D]
        if previous is not None:
            before = self.embedding(previous.clamp(min=0).unsqueeze(1), index[:1])  # [B, 1, D]
            first = torch.where((previous < 0).view(-1, 1, 1), first, before)
        later = self.embedding(values, index[:-1])  # [B, P, D]
        x = torch.cat([first.to(later.dtype), later], dim=1)  # [B, P + 1, D]
        if self.aligned is not None and state is not None:
            assert state.own.alignment is not None
            x = x + self.aligned.prefill(values, state.own.alignment).to(x.dtype)
        elif self.aligned is not None:
            assert condition.memory is not None
            aligned = self.aligned(values, condition.memory, condition.memory_real)
            x = x + aligned.to(x.dtype)  # [B, P + 1, D]
        context = condition.context()
        if self.decoder.uses_token_ids:
            none = values.new_full((len(values), 1), -1)
            before_first = none if previous is None else previous.unsqueeze(1)  # [B, 1]
            context = replace(context, token_ids=torch.cat([before_first, values], dim=1))
        return self.add_positions(x, self.positions(index), condition.vector), context
