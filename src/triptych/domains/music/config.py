"""All settings of a run on music, and the model that they describe."""

from dataclasses import dataclass, field
from typing import Any

from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.feed_forward import GELU
from triptych.core.generation_order import raster
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import Metrical, NoPositions, SumOfEmbeddings
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.data import DataConfig
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.training.run_config import RunSettings


def relative_transformer() -> TransformerConfig:
    """Relative attention without position encodings (Music Transformer, Huang et al. 2018)."""
    return TransformerConfig(
        n_layers=6,
        d_model=256,
        n_heads=8,
        feed_forward=GELU(1024),
        positions=NoPositions(),
        attention=Relative(),
    )


@dataclass(frozen=True)
class ModelConfig:
    """The decoder, and the embeddings of voice and meter."""

    transformer: TransformerConfig = field(default_factory=relative_transformer)
    """Sizes and parts of the decoder."""
    voice_embedding: bool = True
    """Add a learned embedding of the voice of the predicted token (chorales only)."""
    meter_embedding: bool = True
    """Add learned embeddings of the sixteenth in the quarter and in the bar (chorales only)."""

    def build(self, tokenizer: MusicTokenizer, *, length: int) -> DecoderOnly:
        """Build the model for windows of `length` tokens."""
        transformer, vocabulary = self.transformer, tokenizer.vocabulary_size
        order, d_model = raster((length,)), transformer.d_model
        positions = transformer.positions.build(d_model, order)
        cycles = tokenizer.voice_cycles if self.voice_embedding else ()
        cycles += tokenizer.meter_cycles if self.meter_embedding else ()
        if cycles:
            positions = SumOfEmbeddings([positions, Metrical(cycles).build(d_model, order)])
        return DecoderOnly(
            TokenEmbedding(vocabulary, d_model),
            positions,
            transformer.decoder((length,)),
            CategoricalHead(d_model, vocabulary),
            d_model=d_model,
            dropout=transformer.dropout,
        )


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run on music."""

    data: DataConfig = field(default_factory=DataConfig)
    """Pieces, windows and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes, attention and positions."""

    def build_model(self, vocabulary: dict[str, Any] | None = None) -> DecoderOnly:
        """Build the model for the tokenizer and the windows of the data.

        vocabulary: of the weights for the model; UserError for another one than the tokenizer's.
        """
        if vocabulary is not None:
            self.data.source.tokenizer.check_vocabulary(vocabulary, "the checkpoint")
        return self.model.build(self.data.source.tokenizer, length=self.data.sequence_length)
