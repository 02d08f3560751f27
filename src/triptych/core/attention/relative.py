"""Relative attention: a learned vector per distance and head."""

from dataclasses import dataclass

from triptych.core.attention.mask import MaskPattern, SlidingWindow
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative_bias import DistanceBias
from triptych.types import PositiveInt


@dataclass(frozen=True)
class Relative(AttentionConfig):
    """Learned vectors of distances (Huang et al. 2018, Music Transformer, sections 3.3 and 3.4)."""

    max_distance: PositiveInt = 256
    """Longest distance with a vector of its own, in positions; longer ones share that vector."""
    window: PositiveInt | None = None
    """Number of positions that a query reads, itself included; null for all of the past."""

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return SlidingWindow(causal, self.window)

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> DistanceBias:
        return DistanceBias(n_heads, d_head, self.max_distance, causal)
