"""Full attention: every position, or every position that is not later."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from triptych.core.attention.interface import AttentionConfig, Example
from triptych.core.attention.softmax import Pattern, SoftmaxAttention, attend, causal_mask


@dataclass(frozen=True)
class Full(AttentionConfig):
    """Attend to the whole sequence, or to all of its past (Vaswani et al. 2017, section 3.2)."""

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> SoftmaxAttention:
        return SoftmaxAttention(d_model, n_heads, FullPattern(causal))

    @classmethod
    def examples(cls) -> list[Example]:
        return [Example(cls(), (13,)), Example(cls(), (13,), causal=False)]


class FullPattern(Pattern):
    """All keys, or all keys that are not later than the query."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def allowed(self, query: Tensor, key: Tensor) -> Tensor:
        if self.causal:
            return key <= query
        return torch.ones_like(key <= query)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        if padding is None:
            return attend(q, k, v, causal=self.causal)
        mask = ~padding[:, None, None, :]  # [B, 1, 1, K]
        if self.causal:
            mask = mask & causal_mask(q.shape[2], q.device)  # [B, 1, Q, K]
        return attend(q, k, v, mask=mask)
