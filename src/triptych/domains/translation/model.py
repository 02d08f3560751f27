"""Settings of the translation model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from triptych.core.models.encoder_decoder import EncoderDecoder, SharedEmbeddings
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.tokenizer import Tokenizers

ATTENTION_EXTENT = 1024
"""Length in tokens for which attention variants are built; full and relative attention also read
longer sentences."""


@dataclass(frozen=True)
class ModelConfig:
    """Encoder and decoder, which embeddings they share, and label smoothing."""

    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    """Sizes and parts of the encoder and the decoder; n_layers is the encoder's."""
    n_decoder_layers: int | None = None
    """Number of the decoder's blocks; null for as many as the encoder's."""
    share_embeddings: SharedEmbeddings = "all"
    """Matrices that are one parameter: `all` (source embedding, target embedding and output),
    `target` (target embedding and output) or `none`."""
    label_smoothing: float = 0.1
    """Share of each target distribution that is uniform over all tokens but padding, 0 to below 1;
    affects the training loss only."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")
        if self.share_embeddings not in get_args(SharedEmbeddings):
            raise ValueError(
                f"share_embeddings is all, target or none, got {self.share_embeddings}"
            )
        if self.n_decoder_layers is not None and self.n_decoder_layers < 1:
            raise ValueError(f"n_decoder_layers must be at least 1, got {self.n_decoder_layers}")

    def build(self, source_vocabulary: int, target_vocabulary: int) -> EncoderDecoder:
        """Return a model with initial weights for vocabularies of these sizes, in tokens."""
        return EncoderDecoder(
            self.transformer,
            source_vocabulary=source_vocabulary,
            target_vocabulary=target_vocabulary,
            share_embeddings=self.share_embeddings,
            n_decoder_layers=self.n_decoder_layers,
            max_length=ATTENTION_EXTENT,
        )


def build_model(config: ModelConfig, tokenizers: Tokenizers) -> EncoderDecoder:
    """Return a model with initial weights for the tokenizers' ids."""
    return config.build(len(tokenizers.source), len(tokenizers.target))
