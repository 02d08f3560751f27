"""How a translation model reads the source: with an encoder, or in its only decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.models.joint_decoder import JointDecoder
from triptych.core.models.recurrent import CellKind, RecurrentEncoderDecoder, Score
from triptych.core.models.sequence_to_sequence import SequenceToSequence
from triptych.domains.translation.tokenizers.base import PAD

if TYPE_CHECKING:
    from triptych.domains.translation.model import ModelConfig


@dataclass(frozen=True)
class Architecture(ABC):
    """Kind of a translation model."""

    @abstractmethod
    def build(
        self, model: ModelConfig, source_vocabulary: int, target_vocabulary: int
    ) -> SequenceToSequence:
        """Make a model with initial weights for vocabularies of these sizes, in tokens."""

    @abstractmethod
    def check(self, model: ModelConfig) -> None:
        """Raise ValueError for settings of the model that this kind cannot have."""


@dataclass(frozen=True)
class EncoderAndDecoder(Architecture):
    """An encoder of the source, which the decoder of the target reads (Vaswani et al. 2017)."""

    def build(
        self, model: ModelConfig, source_vocabulary: int, target_vocabulary: int
    ) -> EncoderDecoder:
        return EncoderDecoder(
            model.transformer,
            source_vocabulary=source_vocabulary,
            target_vocabulary=target_vocabulary,
            share_embeddings=model.share_embeddings,
            n_decoder_layers=model.n_decoder_layers,
            max_offset=model.max_offset,
        )

    def check(self, model: ModelConfig) -> None:
        """Accept all settings."""


@dataclass(frozen=True)
class OneDecoder(Architecture):
    """One decoder of the source, a separator and the target (Liu et al. 2018, 1801.10198)."""

    source_loss: bool = False
    """Train on the tokens of the source too, as the paper does; the metrics are of the target
    alone."""

    def build(
        self, model: ModelConfig, source_vocabulary: int, target_vocabulary: int
    ) -> JointDecoder:
        return JointDecoder(
            model.transformer,
            vocabulary=target_vocabulary,
            padding=PAD,
            source_loss=self.source_loss,
        )

    def check(self, model: ModelConfig) -> None:
        for name, expected in (
            ("share_embeddings", "all"),
            ("n_decoder_layers", None),
            ("max_offset", 0),
        ):
            if getattr(model, name) != expected:
                raise ValueError(
                    f"{name} is {getattr(model, name)}; expected {expected or 'null'}, because the "
                    "architecture OneDecoder has no encoder"
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

    def build(
        self, model: ModelConfig, source_vocabulary: int, target_vocabulary: int
    ) -> RecurrentEncoderDecoder:
        return RecurrentEncoderDecoder(
            source_vocabulary=source_vocabulary,
            target_vocabulary=target_vocabulary,
            d_model=model.transformer.d_model,
            n_layers=model.transformer.n_layers,
            dropout=model.transformer.dropout,
            cell=self.cell,
            score=self.score,
            input_feeding=self.input_feeding,
            bidirectional=self.bidirectional,
            share_embeddings=model.share_embeddings,
        )

    def check(self, model: ModelConfig) -> None:
        found = {
            "n_decoder_layers": (model.n_decoder_layers, None),
            "max_offset": (model.max_offset, 0),
            "transformer.n_heads": (model.transformer.n_heads, 1),
        }
        for name, (value, expected) in found.items():
            if value != expected:
                wanted = "null" if expected is None else expected
                raise ValueError(
                    f"{name} is {value}; expected {wanted}, because the architecture is Recurrent"
                )
        if self.bidirectional and model.transformer.d_model % 2:
            raise ValueError(
                f"transformer.d_model is {model.transformer.d_model}; expected an even number, "
                "because the architecture is Recurrent and bidirectional"
            )
