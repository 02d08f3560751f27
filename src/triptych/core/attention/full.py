"""Full attention: every position, or every position that is not later."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention


@dataclass(frozen=True)
class Full(AttentionConfig):
    """Attend to the whole sequence, or to all of its past (Vaswani et al. 2017, section 3.2)."""

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> MultiHeadAttention:
        return MultiHeadAttention(d_model, n_heads, FullPattern(causal))

    @classmethod
    def examples(cls) -> list[Example]:
        return [Example(cls(), (13,)), Example(cls(), (13,), causal=False)]


class FullPattern(MaskPattern):
    """All keys, or all keys that are not after the query."""

    is_full = True

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query if self.causal else torch.ones_like(key <= query)

    def sharing_key(self) -> Hashable:
        return type(self), self.causal
