"""Settings of the translation model, and the published shapes."""

from dataclasses import dataclass, field

from triptych.core.feed_forward import ReLU
from triptych.core.models.encoder_decoder import EncoderDecoder, Tie
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.tokenizer import Tokenizers

ATTENTION_EXTENT = 1024
"""Extent in tokens that attention variants are told; full and relative also serve longer lines."""


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the encoder and the decoder, which matrices they share, and their objective."""

    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    """Sizes and parts of the encoder and the decoder; n_layers is the encoder's."""
    n_decoder_layers: int | None = None
    """Number of the decoder's blocks; null for as many as the encoder's."""
    tie: Tie = "all"
    """One matrix for `all` of source embedding, target embedding and output, for those of the
    `target` alone, or for `none`."""
    label_smoothing: float = 0.1
    """Share of the training target that is spread over all types but padding, 0 to below 1; what is
    reported is never smoothed."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")
        if self.tie not in ("all", "target", "none"):
            raise ValueError(f"tie is all, target or none, got {self.tie}")
        if self.n_decoder_layers is not None and self.n_decoder_layers < 1:
            raise ValueError(f"n_decoder_layers must be at least 1, got {self.n_decoder_layers}")

    def build(self, source_vocabulary: int, target_vocabulary: int) -> EncoderDecoder:
        """Make the model for vocabularies of these sizes, in types."""
        return EncoderDecoder.build(
            self.transformer,
            source_vocabulary=source_vocabulary,
            target_vocabulary=target_vocabulary,
            tie=self.tie,
            n_decoder_layers=self.n_decoder_layers,
            max_length=ATTENTION_EXTENT,
        )


def build_model(config: ModelConfig, tokenizers: Tokenizers) -> EncoderDecoder:
    """Make the model that speaks the tokenizers' ids."""
    return config.build(len(tokenizers.source), len(tokenizers.target))


def transformer_base() -> ModelConfig:
    """The base model as published (Vaswani et al. 2017, Table 3)."""
    return ModelConfig(
        TransformerConfig(
            n_layers=6,
            d_model=512,
            n_heads=8,
            dropout=0.1,
            norm_position="post",
            feed_forward=ReLU(2048),
        ),
        tie="all",
        label_smoothing=0.1,
    )


def transformer_big() -> ModelConfig:
    """The big model as published (Vaswani et al. 2017, Table 3)."""
    return ModelConfig(
        TransformerConfig(
            n_layers=6,
            d_model=1024,
            n_heads=16,
            dropout=0.3,
            norm_position="post",
            feed_forward=ReLU(4096),
        ),
        tie="all",
        label_smoothing=0.1,
    )
