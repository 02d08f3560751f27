"""Relative local attention: blocks of queries with a learned vector per distance and head."""

from dataclasses import dataclass

from triptych.core.attention.mask import BlockWindow, MaskPattern
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative_bias import DistanceBias
from triptych.types import PositiveInt


@dataclass(frozen=True)
class RelativeLocal(AttentionConfig):
    """Blocks of positions read their own block and the one before it, with relative logits.

    Music Transformer (Huang et al. 2018), section 3.5, relative local attention; causal only. Every
    distance that occurs, 0 to 2 * block - 1, has a vector of its own.
    """

    causal_only = True

    block: PositiveInt = 512
    """Length of a block of queries, in positions."""

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return BlockWindow(self.block, memory=self.block)

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> DistanceBias:
        return DistanceBias(n_heads, d_head, 2 * self.block - 1, causal)
