"""A decoder over source and target as one sequence: p(source, target) (Liu et al. 2018)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.attention.cross import capture_attention
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.models.base import NO_CONDITION, Condition, TransformerModel
from triptych.core.models.encoder_decoder import AttentionWeights, SequenceToSequence
from triptych.core.positions import raster
from triptych.core.state import DecodingState, StepContext
from triptych.core.transformer import TransformerConfig
from triptych.core.universal import halts


@dataclass(frozen=True, kw_only=True)
class Source(Condition):
    """The source, which a decoder reads before its first target token."""

    tokens: Tensor
    """Int64 [B, K]."""


class JointDecoder(TransformerModel, SequenceToSequence):
    """Source, start token and target as one sequence of a decoder (1801.10198, section 4.2.3).

    The target begins right after the last real token of its row's source. Padding is after the
    target, where no real position reads it. One matrix is the embedding and, not multiplied by
    sqrt(D), the output. Decoding reads the sources of a batch, of one length, into the state.

    source_loss: train on the tokens of the source too, as a language model. padding: its token id.
    max_length: as in `EncoderDecoder`, of both together. Raises ValueError for halting.
    """

    decodes_padded_sources = False

    def __init__(
        self,
        config: TransformerConfig,
        *,
        vocabulary: int,
        padding: int,
        source_loss: bool = False,
        max_length: int = 1024,
    ) -> None:
        super().__init__()
        self.padding = padding
        self.source_loss = source_loss
        self.embedding = TokenEmbedding(vocabulary, config.d_model)
        self.decoder = config.decoder((max_length,))
        if halts(self.decoder):  # its ponder cost would count the padding
            raise ValueError("a decoder over source and target supports no halting")
        self.positions = config.input_positions(raster((max_length,)))
        weight = self.embedding.table.weight  # [V, D]
        self.head = CategoricalHead(config.d_model, vocabulary, bias=False, weight=weight)
        self.dropout = nn.Dropout(config.dropout)

    def features(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor
    ) -> Tensor:
        x = self._decode(joined(source, source_padding, target_input, self.padding))
        first = lengths_of(source, source_padding).unsqueeze(1)  # [B, 1]
        index = first + torch.arange(target_input.shape[1], device=x.device)  # [B, L]
        return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))  # [B, L, D]

    def training_features(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor, expected: Tensor
    ) -> tuple[Tensor, Tensor]:
        if not self.source_loss:
            return super().training_features(source, source_padding, target_input, expected)
        target = torch.cat([target_input[:, :1], expected], dim=1)  # [B, L + 1]
        tokens = joined(source, source_padding, target, self.padding)  # [B, K + L + 1]
        return self._decode(tokens[:, :-1]), tokens[:, 1:]

    def encode(self, source: Tensor, source_padding: Tensor | None = None) -> Source:
        """As in `SequenceToSequence`. Raises ValueError for sources of unequal lengths."""
        if source_padding is not None and bool(source_padding.any()):
            raise ValueError("a joint decoder decodes sources of one length; expected no padding")
        return Source(tokens=source)

    @property
    def n_layers(self) -> int:
        return self.decoder.n_layers

    def attention(
        self, source: Tensor, target_input: Tensor, layer: int | None = None
    ) -> AttentionWeights:
        """As in `SequenceToSequence`; a target position shares its weight between both texts."""
        block, number = self.decoder.block_of(layer or self.n_layers)
        with capture_attention(block) as captured:
            self(source, None, target_input)
        weights, n = captured.self_attention[number], source.shape[1]  # [B, H, K + L, K + L]
        return AttentionWeights(weights[:, :, n:, :n], weights[:, :, :n, :n], weights[:, :, n:, n:])

    def init_state(
        self, batch: int, max_length: int, condition: Condition = NO_CONDITION, lookahead: int = 0
    ) -> DecodingState[Source]:
        if not isinstance(condition, Source):
            raise ValueError("a joint decoder needs the condition of a source")
        length = condition.tokens.shape[1] + max_length
        empty = self.decoder.init_state(batch, length, lookahead=lookahead)
        state = DecodingState(empty.layers, empty.memory, condition)
        self._decode(condition.tokens, state)
        return state

    def prefill(
        self, values: Tensor, state: DecodingState[Source], previous: Tensor | None = None
    ) -> Tensor:
        if previous is None:
            raise ValueError("a joint decoder starts its target from a start token")
        if not values.shape[1]:
            return self.step(previous.unsqueeze(1), torch.zeros_like(previous[:1]), state)[:, 0]
        tokens = torch.cat([state.own.tokens, previous.unsqueeze(1), values], dim=1)
        logits: Tensor = self.head(self._decode(tokens, state)[:, -1])  # [B, V]
        return logits

    def step(
        self, values: Tensor, positions: Tensor, state: DecodingState[Source], context: Any = None
    ) -> Tensor:
        return super().step(values, positions + source_length(state), state, context)

    def step_contexts(self, positions: Tensor, state: DecodingState[Source]) -> list[StepContext]:
        return super().step_contexts(positions + source_length(state), state)

    def state_view(self, state: DecodingState[Any], length: int) -> DecodingState[Any]:
        return super().state_view(state, source_length(state) + length)

    def step_inputs(
        self, values: Tensor, positions: Tensor, encodings: Tensor, state: DecodingState[Source]
    ) -> Tensor:
        return self.add_positions(self.embedding(values, positions), encodings)

    def _decode(self, tokens: Tensor, state: DecodingState[Source] | None = None) -> Tensor:
        """The decoder's output at each token: int64 [B, T] -> [B, T, D]; state: filled."""
        index = torch.arange(tokens.shape[1], device=tokens.device)  # [T]
        x = self.add_positions(self.embedding(tokens, index), self.positions(index))  # [B, T, D]
        output: Tensor = self.decoder(x, state=state)
        return output


def source_length(state: DecodingState[Source]) -> int:
    """Number of source tokens in a state."""
    return state.own.tokens.shape[1]


def lengths_of(tokens: Tensor, padding: Tensor | None) -> Tensor:
    """Number of real tokens of each row: [B, K] -> int64 [B]."""
    if padding is None:
        return tokens.new_full((len(tokens),), tokens.shape[1])
    return (~padding).sum(1)


def joined(source: Tensor, source_padding: Tensor | None, target: Tensor, padding: int) -> Tensor:
    """Each row's source without its padding, then its target, then padding: int64 [B, K + L]."""
    lengths = lengths_of(source, source_padding).unsqueeze(1)  # [B, 1]
    index = lengths + torch.arange(target.shape[1], device=target.device)  # [B, L]
    after = torch.full_like(target, padding)  # [B, L]
    return torch.cat([source, after], dim=1).scatter(1, index, target)  # [B, K + L]
