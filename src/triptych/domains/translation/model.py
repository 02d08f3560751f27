"""Settings of a translation model: its kind and sizes, and what its use needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from triptych.core.models.encoder_decoder import SharedEmbeddings
from triptych.core.models.sequence_to_sequence import SequenceToSequence
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.architectures import Architecture, EncoderAndDecoder
from triptych.domains.translation.tokenizers.base import Tokenizers
from triptych.training.run.settings import ModelSettings
from triptych.types import Checked, FractionBelowOne, NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class ModelConfig(Checked):
    """Kind of model, its sizes, which embeddings it shares, and label smoothing."""

    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    """Sizes and parts of the encoder and the decoder; n_layers is the encoder's."""
    n_decoder_layers: PositiveInt | None = None
    """Number of the decoder's blocks; null for as many as the encoder's."""
    share_embeddings: SharedEmbeddings = "all"
    """Matrices that are one parameter: `all` (source embedding, target embedding and output),
    `target` (target embedding and output) or `none`."""
    max_offset: NonNegativeInt = 0
    """Largest number at which the positions of a training batch start, in tokens; each batch draws
    one from 0 on. Above 0 for a model that is to translate longer sequences than it has seen."""
    label_smoothing: FractionBelowOne = 0.1
    """Share of each target distribution that is uniform over all tokens but padding, 0 to below 1;
    affects the training loss only."""
    architecture: Architecture = field(default_factory=EncoderAndDecoder)
    """Kind of model, by class path: EncoderAndDecoder, OneDecoder or Recurrent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.architecture.check(self)

    def build(self, source_vocabulary: int, target_vocabulary: int) -> SequenceToSequence:
        """Return a model with initial weights for vocabularies of these sizes, in tokens."""
        return self.architecture.build(self, source_vocabulary, target_vocabulary)


@dataclass(frozen=True)
class TranslationSettings(ModelSettings):
    """What use of a translation model needs besides its weights and vocabulary."""

    model: ModelConfig
    """Kind of model and its sizes."""
    source_languages: list[str]
    """Code of each language in which a source may be."""
    target_language: str
    """Language code of the target."""
    summaries: bool = False
    """Whether the targets are summaries, so that a long source is read whole."""
    max_length: int = 256
    """Maximum length of a training pair in tokens, end included, on either side."""
    example: str = ""
    """A source as those of artificial data; empty for natural languages."""

    def build_model(self, vocabulary: Tokenizers) -> SequenceToSequence:
        return self.model.build(len(vocabulary.source), len(vocabulary.target))
