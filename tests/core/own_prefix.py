"""A mask that depends on the example, as a class of a user: a prefix language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from triptych.core.attention.full import Full
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.state import ForwardContext


@dataclass(frozen=True)
class PrefixLM(Full):
    """A text after a prefix whose positions all see each other (Raffel et al. 2020, 3.2.1).

    The prefix of an example ends with its first token `end`.
    """

    end: int = 0

    def build(
        self, d_model: int, n_heads: int, pattern: MaskPattern, **options: Any
    ) -> MultiHeadAttention:
        layer = PrefixAttention(d_model, n_heads, pattern, **options)
        layer.end, layer.uses_token_ids = self.end, True
        return layer


class PrefixAttention(MultiHeadAttention):
    end: int

    def example_mask(self, context: ForwardContext) -> Tensor | None:
        assert context.token_ids is not None
        ends = (context.token_ids == self.end).long()  # [B, L]
        before = ends.cumsum(1) - ends == 0  # [B, L], up to the first end
        position = torch.arange(before.shape[1], device=before.device)  # [L]
        causal = position <= position.unsqueeze(1)  # [L, L]
        return (before.unsqueeze(1) & before.unsqueeze(2) | causal).unsqueeze(1)  # [B, 1, L, L]
