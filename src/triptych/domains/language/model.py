"""Settings of the models of text, and the models that they describe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch import nn

from triptych.core.embeddings import TokenEmbedding
from triptych.core.generation_order import raster
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import EncoderOnly, MaskedTokenModel, Pooler
from triptych.core.models.sequence_vector import (
    FirstTokenReader,
    LastTokenReader,
    MeanReader,
    SequenceReader,
    SequenceTaskModel,
    TaskHead,
)
from triptych.core.transformer import TransformerConfig
from triptych.domains.language.tasks.base import Task
from triptych.domains.language.vocabulary import Vocabulary
from triptych.training.run.settings import ModelSettings

Base: TypeAlias = Literal["encoder", "decoder"]
"""Model under the head of a task: that of masked tokens or that of the next token."""
Pooling: TypeAlias = Literal["cls", "mean"]
"""Vector of a row of tokens that an encoder has read."""


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the encoder or decoder; the task decides which of both is built."""

    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    """Sizes and parts of the stack."""
    output_bias: bool = True
    """Whether the output layer of a decoder has a bias. Decoders of other libraries have none, see
    `triptych export --format hf`."""

    def build_masked(
        self, vocabulary: int, max_length: int, *, next_sentence: bool
    ) -> MaskedTokenModel:
        """Return an encoder that predicts masked tokens; sizes in tokens."""
        return MaskedTokenModel(
            self.transformer,
            vocabulary=vocabulary,
            max_length=max_length,
            next_sentence=next_sentence,
        )

    def build_decoder(self, vocabulary: int, max_length: int) -> DecoderOnly:
        """Return a decoder that predicts the next token; sizes in tokens.

        The output matrix is the token embedding.
        """
        parts = self.transformer
        embedding = TokenEmbedding(vocabulary, parts.d_model)
        return DecoderOnly(
            embedding,
            parts.input_positions(raster((max_length,))),
            parts.decoder((max_length,)),
            CategoricalHead(
                parts.d_model,
                vocabulary,
                bias=self.output_bias,
                weight=embedding.table.weight,
            ),
            d_model=parts.d_model,
            dropout=parts.dropout,
        )

    def build_task_model(
        self, base: Base, pooling: Pooling, vocabulary: int, max_length: int, *, n_outputs: int
    ) -> SequenceTaskModel:
        """Return an encoder or decoder with the head of a task; sizes in tokens.

        pooling: ignored by a decoder.
        """
        parts = self.transformer
        reader: SequenceReader
        if base == "encoder":
            encoder = EncoderOnly(parts, vocabulary=vocabulary, max_length=max_length)
            mean = pooling == "mean"
            reader = (
                MeanReader(encoder) if mean else FirstTokenReader(encoder, Pooler(parts.d_model))
            )
        else:
            reader = LastTokenReader(self.build_decoder(vocabulary, max_length))
        head = TaskHead(parts.d_model, n_outputs, dropout=parts.dropout)
        return SequenceTaskModel(reader, head)


@dataclass(frozen=True)
class LanguageSettings(ModelSettings):
    """What use of a model of text needs besides its weights and vocabulary."""

    model: ModelConfig
    """Sizes of the model."""
    task: Task
    """What was trained."""
    max_length: int
    """Maximum length of an example in tokens, special ids included."""

    def build_model(self, vocabulary: Vocabulary) -> nn.Module:
        return self.task.build_model(self.model, vocabulary, self.max_length)
