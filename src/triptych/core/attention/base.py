"""Config of an attention variant: its mask pattern, its relative bias and the layer they make.

Sizes in shape comments: B batch, L positions, K keys, H heads, E width of a head, D width of the
model, S cache slots, P positions of one step, T period of the relative bias.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from triptych.core import generation_order as orders
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention, head_width
from triptych.core.attention.relative_bias import RelativeBias
from triptych.core.positions import RotaryEmbedding


class Example(NamedTuple):
    """A small setting of a variant, on which the contract tests run."""

    config: AttentionConfig
    shape: tuple[int, ...]
    causal: bool = True


@dataclass(frozen=True)
class AttentionConfig(ABC):
    """Settings of one variant, in the variant's own file."""

    @abstractmethod
    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        """Make the pattern that all layers of a stack share.

        shape: extent of each axis of the sequence, slowest first: (2048,) for text and music,
        (32, 32, 3) for an RGB image.
        Raises ValueError where the variant cannot serve such a sequence.
        """

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> RelativeBias | None:
        """Make the relative bias of one layer; None for none."""
        return None

    def build(
        self,
        d_model: int,
        n_heads: int,
        pattern: MaskPattern,
        *,
        dropout: float = 0.0,
        rotary: RotaryEmbedding | None = None,
    ) -> MultiHeadAttention:
        """Make the attention of one layer under a pattern of `mask_pattern`.

        dropout, rotary: as in `MultiHeadAttention`. Raises ValueError for rotary positions with a
        relative bias, which would read rotated queries.
        """
        bias = self.relative_bias(n_heads, head_width(d_model, n_heads), pattern.causal)
        if rotary is not None and bias is not None:
            name = type(self).__name__
            raise ValueError(f"{name} attention cannot be combined with rotary positions")
        return MultiHeadAttention(d_model, n_heads, pattern, bias, dropout=dropout, rotary=rotary)

    def order_of(self, shape: tuple[int, ...]) -> orders.GenerationOrder:
        """Order of generation of this variant on a grid of this shape."""
        return orders.raster(shape)

    @classmethod
    def examples(cls) -> list[Example]:
        """Small settings that reach each border of the variant, for the contract tests."""
        return [Example(cls(), (13,))]
