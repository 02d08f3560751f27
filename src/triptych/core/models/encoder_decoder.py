"""Models of a target sequence given a source: their interface, and the encoder-decoder."""

from abc import abstractmethod
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from triptych.core.attention.cross import capture_attention
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.models.base import (
    NO_CONDITION,
    AutoregressiveModel,
    Condition,
    TransformerModel,
    inverted,
)
from triptych.core.positions import raster
from triptych.core.state import DecodingState, ForwardContext, Memory
from triptych.core.transformer import TransformerConfig

SharedEmbeddings = Literal["all", "target", "none"]
"""Matrices that are one: both embeddings and the output, the target's two, or none."""


class AttentionWeights(NamedTuple):
    """Attention weights of one layer."""

    cross: Tensor
    """Of the target to the source: [B, H, L, K]."""
    source: Tensor | None = None
    """Of the source to itself: [B, H, K, K]; None where it has no self-attention."""
    target: Tensor | None = None
    """Of the target to itself: [B, H, L, L]; None where it has no self-attention."""


class SequenceToSequence(AutoregressiveModel):
    """p(target | source) over tokens; decoding begins with `encode` and a start token."""

    decodes_padded_sources: bool = True
    """Whether `encode` takes sources of unequal lengths, which are padded."""

    def forward(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor
    ) -> Tensor:
        """Logits of every next token under teacher forcing: [B, L, V]; see `features`."""
        logits: Tensor = self.head(self.features(source, source_padding, target_input))
        return logits  # [B, L, V]

    @abstractmethod
    def features(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor
    ) -> Tensor:
        """The output from which the head predicts every next token: [B, L, D].

        source int64 [B, K]; source_padding [B, K], True on padding; target_input int64 [B, L]
        begins with the start token. All padding is at the end, where no real position reads it.
        """

    @abstractmethod
    def encode(self, source: Tensor, source_padding: Tensor | None = None) -> Condition:
        """The condition of a source, int64 [B, K] with padding [B, K], for decoding."""

    def training_features(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor, expected: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Output [B, T, D] and tokens [B, T] of the training loss: those of `features`.

        A model may predict tokens of the source too. expected: int64 [B, L], the next tokens.
        """
        return self.features(source, source_padding, target_input), expected

    @abstractmethod
    def bytes_per_position(self) -> int:
        """Size of the cache of one position of one row, in bytes."""

    @property
    @abstractmethod
    def n_layers(self) -> int:
        """Number of layers whose attention `attention` gives."""

    @abstractmethod
    def attention(
        self, source: Tensor, target_input: Tensor, layer: int | None = None
    ) -> AttentionWeights:
        """Weights of a layer, from 1, None for the last: source [B, K], target [B, L], unpadded."""


class EncoderDecoder(TransformerModel, SequenceToSequence):
    """Encoder and decoder with cross-attention over token sequences (Vaswani et al. 2017).

    Both embeddings are multiplied by sqrt(D). The output is linear without a bias; it may share
    the matrix of the target embedding, which is not multiplied there (section 3.4). A matrix of its
    own starts at zero, so that every token starts with the same probability.

    max_length: extent in tokens for the position encoding and the attention variant; full and
    relative attention and sinusoidal positions also serve longer sequences. Sharing `all` needs
    two vocabularies of one size. max_offset: in training the positions of both sequences start at a
    random number from 0 to max_offset, so that the model learns distances and not positions
    (Dehghani et al. 2018, 1807.03819, section 3.3); in decoding they start at 0.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        source_vocabulary: int,
        target_vocabulary: int,
        share_embeddings: SharedEmbeddings = "all",
        n_decoder_layers: int | None = None,
        max_length: int = 1024,
        max_offset: int = 0,
    ) -> None:
        super().__init__()
        of_decoder = replace(config, n_layers=n_decoder_layers or config.n_layers)
        share_all = share_embeddings == "all"
        source = TokenEmbedding(source_vocabulary, config.d_model)
        target = source if share_all else TokenEmbedding(target_vocabulary, config.d_model)
        self.encoder = config.encoder((max_length,))
        self.decoder = of_decoder.decoder((max_length,), cross=True)
        self.source_embedding = source
        self.target_embedding = target
        self.positions = config.input_positions(raster((max_length,)))
        shared = None if share_embeddings == "none" else target.table.weight  # [V, D]
        self.head = CategoricalHead(config.d_model, target_vocabulary, bias=False, weight=shared)
        self.dropout = nn.Dropout(config.dropout)
        self.max_offset = max_offset

    def features(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor
    ) -> Tensor:
        first = None
        if self.training and self.max_offset:
            first = torch.randint(self.max_offset + 1, (), device=source.device)
        condition = self.encode(source, source_padding, first)
        x = self._embed(self.target_embedding, target_input, first)  # [B, L, D]
        context = ForwardContext(memory=condition.memory, first_position=first)
        features: Tensor = self.decoder(x, context)  # [B, L, D]
        return features

    def encode(
        self,
        source: Tensor,
        source_padding: Tensor | None = None,
        first_position: Tensor | None = None,
    ) -> Condition:
        """As in `SequenceToSequence`; first_position: as in `ForwardContext`."""
        x = self._embed(self.source_embedding, source, first_position)  # [B, K, D]
        real = inverted(source_padding)
        memory: Tensor = self.encoder(x, ForwardContext(real=real, first_position=first_position))
        return Condition(memory=Memory(memory, real))

    @property
    def n_layers(self) -> int:
        return min(self.encoder.n_layers, self.decoder.n_layers)

    def attention(
        self, source: Tensor, target_input: Tensor, layer: int | None = None
    ) -> AttentionWeights:
        encoder_block, of_encoder = self.encoder.block_of(layer or self.encoder.n_layers)
        decoder_block, of_decoder = self.decoder.block_of(layer or self.decoder.n_layers)
        with (
            capture_attention(encoder_block) as encoding,
            capture_attention(decoder_block) as decoding,
        ):
            self(source, None, target_input)
        own = encoding.self_attention[of_encoder], decoding.self_attention[of_decoder]
        return AttentionWeights(decoding.cross[of_decoder], *own)

    def init_state(
        self, batch: int, max_length: int, condition: Condition = NO_CONDITION, lookahead: int = 0
    ) -> DecodingState[None]:
        context = ForwardContext(memory=condition.memory)
        return self.decoder.init_state(batch, max_length, context, lookahead=lookahead)

    def prefill(
        self, values: Tensor, state: DecodingState[None], previous: Tensor | None = None
    ) -> Tensor:
        if previous is None:
            raise ValueError("an encoder-decoder model starts from a start token")
        tokens = torch.cat([previous.unsqueeze(1), values], dim=1)  # [B, P + 1]
        x = self._embed(self.target_embedding, tokens)  # [B, P + 1, D]
        logits: Tensor = self.head(self.decoder(x, state=state)[:, -1])  # [B, V]
        return logits

    def step_inputs(
        self, values: Tensor, positions: Tensor, encodings: Tensor, state: DecodingState[None]
    ) -> Tensor:
        return self.add_positions(self.target_embedding(values, positions), encodings)

    def _embed(
        self, embedding: TokenEmbedding, tokens: Tensor, first_position: Tensor | None = None
    ) -> Tensor:
        """Embeddings with position encodings, of positions 0..L-1: [B, L, D]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)  # [L]
        x = embedding(tokens, positions)  # [B, L, D]
        if first_position is not None:
            positions = positions + first_position
        return self.add_positions(x, self.positions(positions))
