"""Grouped queries: several heads of queries share one head of keys and values."""

from dataclasses import dataclass
from typing import Any

from einops import rearrange
from torch import Tensor, nn

from triptych.core.attention.mask import MaskPattern, SlidingWindow
from triptych.core.attention.multihead import AttentionConfig, MultiHeadAttention
from triptych.types import PositiveInt


@dataclass(frozen=True)
class GroupedQueries(AttentionConfig):
    """Full attention with a smaller cache (Ainslie et al. 2023, 2305.13245, section 2.2)."""

    n_key_heads: PositiveInt = 1
    """Heads of keys and values, a divisor of the number of heads; 1 is multi-query attention
    (Shazeer 2019, 1911.02150)."""
    window: PositiveInt | None = None
    """Number of positions that a query reads, itself included; null for all of the past."""

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return SlidingWindow(causal, self.window)

    def build(
        self, d_model: int, n_heads: int, pattern: MaskPattern, **options: Any
    ) -> MultiHeadAttention:
        return GroupedAttention(d_model, n_heads, pattern, self.n_key_heads, **options)


class GroupedAttention(MultiHeadAttention):
    """Attention of n_key_heads heads of keys and values; ValueError where they do not divide."""

    def __init__(
        self, d_model: int, n_heads: int, pattern: MaskPattern, n_key_heads: int, **options: Any
    ) -> None:
        super().__init__(d_model, n_heads, pattern, **options)
        if n_heads % n_key_heads:
            raise ValueError(f"n_key_heads must divide n_heads, {n_heads}; got {n_key_heads}")
        self.n_key_heads = n_key_heads
        self.qkv_proj = nn.Linear(d_model, (n_heads + 2 * n_key_heads) * self.d_head)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads = rearrange(self.qkv_proj(x), "b l (h e) -> b h l e", e=self.d_head)
        n = self.n_key_heads
        q, k, v = heads.split([self.n_heads, n, n], dim=1)  # [B, H, L, E], 2 x [B, G, L, E]
        return q, k, v
