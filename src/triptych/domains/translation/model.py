"""Translation models: their kinds, sizes and vocabularies, and what their use needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar

from triptych.core.models.encoder_decoder import (
    EncoderDecoder,
    SequenceToSequence,
    SharedEmbeddings,
)
from triptych.core.models.joint_decoder import JointDecoder
from triptych.core.models.recurrent import CellKind, RecurrentEncoderDecoder, Score
from triptych.core.transformer import TransformerConfig
from triptych.text.tokenizer import PAD, TextTokenizer, TokenizerConfig
from triptych.training.run.checkpoint import ModelSettings
from triptych.types import Checked, FractionBelowOne, NonNegativeInt, PositiveInt

START, END = 1, 2
SPECIALS = ("<pad>", "<s>", "</s>")
"""Names of the special ids: padding, start and end."""
N_SPECIALS = len(SPECIALS)


class Tokenizers:
    """Tokenizers of source and target: the same object if the vocabulary is shared."""

    def __init__(self, source: TextTokenizer, target: TextTokenizer) -> None:
        self.source = source
        self.target = target

    @property
    def shared(self) -> bool:
        return self.source is self.target

    @classmethod
    def train(
        cls,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        kind: TokenizerConfig,
        vocabulary_size: int,
        shared: bool,
    ) -> Tokenizers:
        """Learn one tokenizer from both sides together if shared, else one from each side."""
        if shared:
            both = kind.build([*sources, *targets], vocabulary_size, SPECIALS)
            return cls(both, both)
        return cls(*(kind.build(side, vocabulary_size, SPECIALS) for side in (sources, targets)))

    def to_plain(self) -> dict[str, Any]:
        """Return JSON types for the checkpoint: tokenizers as strings, target null if shared."""
        return {
            "source": self.source.to_json(),
            "target": None if self.shared else self.target.to_json(),
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Tokenizers:
        source, target = plain["source"], plain["target"]
        first = TextTokenizer.from_json(source, SPECIALS)
        return cls(first, first if target is None else TextTokenizer.from_json(target, SPECIALS))

    def __str__(self) -> str:
        if self.shared:
            return f"one vocabulary of {len(self.source):,} tokens"
        return f"vocabularies of {len(self.source):,} source and {len(self.target):,} target tokens"


@dataclass(frozen=True)
class Architecture(ABC):
    """Kind of a translation model."""

    fixed: ClassVar[dict[str, Any]] = {}
    """Settings of the model by name that this kind has with one value alone."""

    @abstractmethod
    def build(self, model: ModelConfig, source: int, target: int) -> SequenceToSequence:
        """Make a model with initial weights for vocabularies of these sizes, in tokens."""

    def check(self, model: ModelConfig) -> None:
        """Raise ValueError for settings of the model that this kind cannot have."""
        for name, expected in self.fixed.items():
            if (value := attrgetter(name)(model)) != expected:
                wanted = "null" if expected is None else expected
                raise ValueError(
                    f"{name} is {value}; expected {wanted}, because the architecture is "
                    f"{type(self).__name__}"
                )


@dataclass(frozen=True)
class EncoderAndDecoder(Architecture):
    """An encoder of the source, which the decoder of the target reads (Vaswani et al. 2017)."""

    def build(self, model: ModelConfig, source: int, target: int) -> EncoderDecoder:
        return EncoderDecoder(
            model.transformer,
            source_vocabulary=source,
            target_vocabulary=target,
            share_embeddings=model.share_embeddings,
            n_decoder_layers=model.n_decoder_layers,
            max_offset=model.max_offset,
        )


@dataclass(frozen=True)
class OneDecoder(Architecture):
    """One decoder of the source, a separator and the target (Liu et al. 2018, 1801.10198)."""

    source_loss: bool = False
    """Train on the tokens of the source too, as the paper does; the metrics are of the target
    alone."""
    fixed: ClassVar[dict[str, Any]] = {
        "share_embeddings": "all",
        "n_decoder_layers": None,
        "max_offset": 0,
    }

    def build(self, model: ModelConfig, source: int, target: int) -> JointDecoder:
        return JointDecoder(
            model.transformer, vocabulary=target, padding=PAD, source_loss=self.source_loss
        )


@dataclass(frozen=True)
class Recurrent(Architecture):
    """Recurrent encoder and decoder with attention (Luong et al. 2015, 1508.04025).

    Of `transformer` it takes n_layers, d_model and dropout; it has one attention, of one head.
    """

    cell: CellKind = "lstm"
    """Recurrent cell: `lstm` or `gru`."""
    score: Score = "general"
    """Score of a source state: `dot` or `general`, which has a matrix."""
    input_feeding: bool = True
    """Whether each position also reads the attentional vector of the one before."""
    bidirectional: bool = False
    """Whether half of the encoder's features read the source from its end; else all read it from
    its beginning, as in the paper."""
    fixed: ClassVar[dict[str, Any]] = {
        "n_decoder_layers": None,
        "max_offset": 0,
        "transformer.n_heads": 1,
    }

    def build(self, model: ModelConfig, source: int, target: int) -> RecurrentEncoderDecoder:
        return RecurrentEncoderDecoder(
            source_vocabulary=source,
            target_vocabulary=target,
            d_model=model.transformer.d_model,
            n_layers=model.transformer.n_layers,
            dropout=model.transformer.dropout,
            share_embeddings=model.share_embeddings,
            **vars(self),  # the settings above
        )

    def check(self, model: ModelConfig) -> None:
        super().check(model)
        if self.bidirectional and model.transformer.d_model % 2:
            raise ValueError(
                f"transformer.d_model is {model.transformer.d_model}; expected an even number, "
                "because the architecture is Recurrent and bidirectional"
            )


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

    def build(self, source: int, target: int) -> SequenceToSequence:
        return self.architecture.build(self, source, target)


@dataclass(frozen=True)
class TranslationSettings(ModelSettings):
    """What use of a translation model needs besides its weights and vocabulary."""

    model: ModelConfig
    source_languages: list[str]
    """Code of each language in which a source may be."""
    target_language: str
    summaries: bool = False
    """Whether the targets are summaries, so that a long source is read whole."""
    max_length: int = 256
    """Maximum length of a training pair in tokens, end included, on either side."""

    def build_model(self, vocabulary: Tokenizers) -> SequenceToSequence:
        return self.model.build(len(vocabulary.source), len(vocabulary.target))
