"""Local 1-D attention: blocks of queries over their own block and a memory before it."""

from dataclasses import dataclass

from triptych.core.attention.mask import BlockWindow, MaskPattern
from triptych.core.attention.multihead import AttentionConfig
from triptych.types import NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class Local1D(AttentionConfig):
    """Blocks of positions read their own block and some positions before it.

    Image Transformer (Parmar et al. 2018), section 3.3, local 1D; causal only.
    """

    causal_only = True

    block: PositiveInt = 256
    """Length of a block of queries, in positions."""
    memory: NonNegativeInt = 256
    """Length of the memory before the block, in positions."""

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return BlockWindow(self.block, self.memory)
