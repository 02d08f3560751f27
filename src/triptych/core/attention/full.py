"""Full attention: every position, or every position that is not later."""

from dataclasses import dataclass

from triptych.core.attention.mask import MaskPattern, SlidingWindow
from triptych.core.attention.multihead import AttentionConfig


@dataclass(frozen=True)
class Full(AttentionConfig):
    """Attend to the whole sequence, or to all of its past (Vaswani et al. 2017, section 3.2)."""

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return SlidingWindow(causal)
