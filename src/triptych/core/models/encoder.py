"""Encoder of a sequence that conditions a decoder-only model, such as a small picture."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from triptych.core.attention.context import ForwardContext
from triptych.core.embeddings import ValueEmbedding
from triptych.core.transformer import Stack


class SequenceEncoder(nn.Module):
    """Reads a sequence in both directions into the memory of cross-attention.

    embedding: (values [B, K, ...], index [K] of the values) -> [B, K, D]. positions: index int64
    [K] -> [K, D]. stack: not causal, of the decoder's width.
    """

    def __init__(
        self, embedding: ValueEmbedding, positions: nn.Module, stack: Stack, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.stack = stack
        self.dropout = nn.Dropout(dropout)

    def forward(self, values: Tensor, real: Tensor | None = None) -> Tensor:
        """values int64 [B, K, ...], real bool [B, K], False on padding -> memory [B, K, D]."""
        index = torch.arange(values.shape[1], device=values.device)  # [K]
        x = self.embedding(values, index)  # [B, K, D]
        x = self.dropout(x + self.positions(index).to(x.dtype))
        memory: Tensor = self.stack(x, ForwardContext(real=real))
        return memory
