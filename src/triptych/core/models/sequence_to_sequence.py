"""The interface of a model that maps a source sequence to a target sequence."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from torch import Tensor

from triptych.core.models.base import AutoregressiveModel, Condition


class AttentionWeights(NamedTuple):
    """Attention weights of one layer."""

    cross: Tensor
    """Of the target to the source: [B, H, L, K]."""
    source: Tensor | None = None
    """Of the source to itself: [B, H, K, K]; None without `source_has_attention`."""
    target: Tensor | None = None
    """Of the target to itself: [B, H, L, L]; None where it has no self-attention."""


class SequenceToSequence(AutoregressiveModel):
    """p(target | source) over tokens.

    In decoding, the condition of `init_state` is that of `encode`, and the value before the first
    one (`previous`) is the start token.
    """

    decodes_padded_sources: bool = True
    """Whether `encode` takes sources of unequal lengths, which are padded."""
    source_has_attention: bool = True
    """Whether `attention` gives weights of the source to itself."""

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
        self,
        source: Tensor,
        source_padding: Tensor | None,
        target_input: Tensor,
        expected: Tensor,
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
        """Attention weights of a layer; layer: from 1, None for the last one.

        source int64 [B, K], target_input int64 [B, L], without padding.
        """
