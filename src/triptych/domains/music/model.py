"""Config of the music model: a decoder-only Transformer over music tokens."""

from dataclasses import dataclass, field

from torch import nn

from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.feed_forward import GELU
from triptych.core.generation_order import raster
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import Metrical, NoPositions, SumOfEmbeddings
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.tokenizers.base import MusicTokenizer


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
        return DecoderOnly(
            TokenEmbedding(vocabulary, transformer.d_model),
            self._positions(tokenizer, length),
            transformer.decoder((length,)),
            CategoricalHead(transformer.d_model, vocabulary),
            d_model=transformer.d_model,
            dropout=transformer.dropout,
        )

    def _positions(self, tokenizer: MusicTokenizer, length: int) -> nn.Module:
        order, d_model = raster((length,)), self.transformer.d_model
        positions = self.transformer.positions.build(d_model, order)
        cycles = tokenizer.voice_cycles if self.voice_embedding else ()
        cycles += tokenizer.meter_cycles if self.meter_embedding else ()
        if not cycles:
            return positions
        return SumOfEmbeddings([positions, Metrical(cycles).build(d_model, order)])
