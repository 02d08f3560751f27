"""The model of music: its settings, and what its use needs."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from triptych.core.attention.full import Full
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.layers import GELU
from triptych.core.models.base import Conditioner
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import SequenceEncoder
from triptych.core.positions import Metrical, NoPositions, Sinusoidal, SumOfEmbeddings, raster
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.bar_times import BarTimes
from triptych.domains.music.held_notes import HeldNotes
from triptych.domains.music.melody import MelodyConditioner, WindowMelody
from triptych.domains.music.tokenizers.base import (
    N_MELODY_SYMBOLS,
    MelodicTokenizer,
    MusicTokenizer,
)
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.domains.music.voice_leading import VoiceLeading
from triptych.domains.music.voice_orders import VoiceOrders
from triptych.training.run.checkpoint import ModelSettings
from triptych.types import Checked, NonNegativeFloat, NonNegativeInt, PositiveInt


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
class MelodyEncoder(Checked):
    """Encoder of a melody: blocks of the decoder's sizes with full attention and sinusoids."""

    n_layers: PositiveInt = 2
    """Number of blocks."""

    def build(self, decoder: TransformerConfig, tokenizer: MusicTokenizer) -> MelodyConditioner:
        """Build the encoder beside a decoder; ValueError for music without a melody."""
        if not isinstance(tokenizer, MelodicTokenizer):
            raise ValueError(f"{tokenizer.name} has no melody; set model.melody to null")
        config = replace(decoder, n_layers=self.n_layers, attention=Full(), positions=Sinusoidal())
        order = raster((1,))  # sinusoids serve any length
        encoder = SequenceEncoder(
            TokenEmbedding(N_MELODY_SYMBOLS, config.d_model),
            config.positions.build(config.d_model, order),
            config.encoder((1,)),
            config.dropout,
        )
        durations = torch.from_numpy(tokenizer.durations)  # [V]
        return MelodyConditioner(encoder, durations, tokenizer.melody_step, config.d_model)


@dataclass(frozen=True)
class ModelConfig:
    """The decoder, and the embeddings of voice and meter."""

    transformer: TransformerConfig = field(default_factory=relative_transformer)
    """Sizes and parts of the decoder."""
    voice_embedding: bool = True
    """Add a learned embedding of the voice of the predicted token (chorales only)."""
    meter_embedding: bool = True
    """Add learned embeddings of the sixteenth in the quarter and in the bar (chorales only)."""
    voice_leading: bool = False
    """Add to the logits what the intervals to the voices above say (chorales only, see
    `VoiceLeading`)."""
    parallel_penalty: NonNegativeFloat = 0.0
    """Weight in training of the number of parallel fifths and octaves that the model expects at a
    token; with `voice_leading`. W makes them about 1 + W times as rare."""
    voice_orders: bool = False
    """Tell the model in which order the voices of a step are written, so that it can be trained on
    all of them with `data.augmentation.reordered_share` (chorales only, see `VoiceOrders`)."""
    melody: MelodyEncoder | None = None
    """Encoder of a melody that every piece accompanies; null for a model without one."""
    held_notes: bool = False
    """Add to the inputs which notes sound and for how long (events of one piano only, without a
    melody, see `HeldNotes`)."""
    bar_times: bool = False
    """Add to the inputs the number of the bar and the place in it (several instruments only, see
    `BarTimes`)."""
    tokenizer: MusicTokenizer = field(default_factory=ChoraleTokenizer)
    """How the music is written, by class path: ChoraleTokenizer for four voices, EventTokenizer for
    one piano, RemiTokenizer for several instruments and drums."""

    def build(self, *, length: int) -> DecoderOnly:
        """Build the model for windows of `length` tokens."""
        transformer, tokenizer = self.transformer, self.tokenizer
        vocabulary = tokenizer.vocabulary_size
        order, d_model = raster((length,)), transformer.d_model
        n_voices = len(tokenizer.voice_ranges)
        for name in ("voice_leading", "voice_orders"):
            if getattr(self, name) and not n_voices:
                raise ValueError(f"{tokenizer.name} has no voices; set model.{name} to false")
        if self.parallel_penalty and not self.voice_leading:
            raise ValueError("model.parallel_penalty needs model.voice_leading true")
        positions = transformer.input_positions(order)
        cycles = tokenizer.voice_cycles if self.voice_embedding else ()
        cycles += tokenizer.meter_cycles if self.meter_embedding else ()
        if cycles:
            positions = SumOfEmbeddings([positions, Metrical(cycles).build(d_model, order)])
        conditioner: Conditioner | None = None
        if self.melody is not None:
            conditioner = self.melody.build(transformer, tokenizer)
        if self.voice_orders:
            if conditioner is not None:
                raise ValueError("model.voice_orders and model.melody exclude each other")
            conditioner = VoiceOrders(n_voices, d_model)
        if self.held_notes:
            if not isinstance(tokenizer, EventTokenizer):
                raise ValueError(
                    f"{tokenizer.name} has no note-offs; set model.held_notes to false"
                )
            if conditioner is not None:
                raise ValueError("model.held_notes and model.melody exclude each other")
            conditioner = HeldNotes(torch.from_numpy(tokenizer.durations), d_model)
        if self.bar_times:
            if not isinstance(tokenizer, RemiTokenizer):
                raise ValueError(f"{tokenizer.name} has no bars; set model.bar_times to false")
            conditioner = BarTimes(tokenizer, d_model)
        model = DecoderOnly(
            TokenEmbedding(vocabulary, d_model),
            positions,
            transformer.decoder((length,), cross=self.melody is not None),
            CategoricalHead(d_model, vocabulary),
            d_model=d_model,
            dropout=transformer.dropout,
            conditioner=conditioner,
            term=VoiceLeading(tokenizer.id_pitches, n_voices) if self.voice_leading else None,
        )
        # A new model is the one without the melody: beside random cross-attention the decoder
        # learned later to use its own past.
        for block in model.decoder.blocks:
            if block.cross is not None:
                torch.nn.init.zeros_(block.cross.out_proj.weight)
        return model


@dataclass(frozen=True)
class MusicSettings(ModelSettings):
    """What use of a model of music needs besides its weights."""

    model: ModelConfig
    """Sizes, attention, positions and tokenizer."""
    sequence_length: PositiveInt
    """Length of a window, in tokens: the most that the model sees at once."""
    overlap: NonNegativeInt
    """Overlap of consecutive windows, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap >= self.sequence_length:
            raise ValueError(
                f"overlap must be less than sequence_length, got {self.overlap} tokens "
                f"of {self.sequence_length}"
            )
        for name in ("sequence_length", "overlap"):
            if (value := getattr(self, name)) % self.tokenizer.bar:
                raise ValueError(
                    f"{name} must be a multiple of {self.tokenizer.bar} tokens for "
                    f"{self.tokenizer.name} (one bar), got {value}"
                )

    @property
    def tokenizer(self) -> MusicTokenizer:
        """Tokenizer of the model's music."""
        return self.model.tokenizer

    @property
    def window_melody(self) -> WindowMelody | None:
        """Reader of the melodies that the model is given; None for a model without an encoder."""
        if self.model.melody is None or not isinstance(self.tokenizer, MelodicTokenizer):
            return None
        return WindowMelody(self.tokenizer, self.sequence_length)

    def window_starts(self, n_tokens: int) -> list[int]:
        """Return the starts of a piece's windows: every length - overlap tokens up to its end."""
        step = self.sequence_length - self.overlap
        return list(range(0, max(1, n_tokens - self.overlap), step))

    def build_model(self, vocabulary: dict[str, Any] | None = None) -> DecoderOnly:
        """Build the model for the tokenizer and the windows.

        vocabulary: of the weights for the model; UserError for another one than the tokenizer's.
        """
        if vocabulary is not None:
            self.tokenizer.check_vocabulary(vocabulary, "the checkpoint")
        return self.model.build(length=self.sequence_length)
