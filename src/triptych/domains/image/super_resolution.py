"""Super-resolution: the model is conditioned on the image averaged down to a small one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from triptych.core.attention.full import Full
from triptych.core.embeddings import PixelEmbedding
from triptych.core.generation_order import raster
from triptych.core.models.encoder_only import SequenceEncoder
from triptych.core.positions import Axial
from triptych.core.transformer import TransformerConfig
from triptych.types import Checked, IntAboveOne, PositiveInt


@dataclass(frozen=True)
class SuperResolution(Checked):
    """An encoder of the image averaged down (Parmar et al. 2018, section 5.3)."""

    factor: IntAboveOne | None = None
    """Height of the image over that of the small one, and width likewise; null for no encoder."""
    n_layers: PositiveInt = 2
    """Blocks of the encoder, with full attention and the decoder's other sizes."""

    def small_shape(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return height, width and channels of the small image of an image.

        Raises ValueError where the factor does not divide height and width.
        """
        height, width, channels = shape
        if self.factor is None or height % self.factor or width % self.factor:
            raise ValueError(
                f"super_resolution.factor {self.factor} does not divide the height {height} and "
                f"the width {width} of the images"
            )
        return height // self.factor, width // self.factor, channels

    def build(
        self, transformer: TransformerConfig, shape: tuple[int, int, int], levels: int
    ) -> SequenceEncoder | None:
        """Make the encoder of the pixels of a small image [B, h w, C]; None without a factor.

        transformer: of the decoder. shape: of the large image.
        """
        if self.factor is None:
            return None
        height, width, channels = self.small_shape(shape)
        own = replace(transformer, n_layers=self.n_layers, attention=Full(), positions=Axial())
        return SequenceEncoder(
            PixelEmbedding(levels, channels, own.d_model),
            own.input_positions(raster((height, width))),
            own.encoder((height, width)),
            own.dropout,
        )


def average_down(pixels: Tensor, factor: int) -> Tensor:
    """Return the mean of each square of pixels, rounded, a half up, in integers.

    uint8 [B, H, W, C] -> [B, H / factor, W / factor, C].
    """
    squares: Tensor = pixels.long().unflatten(2, (-1, factor)).unflatten(1, (-1, factor))
    sums: Tensor = squares.sum((2, 4))  # [B, h, w, C]
    means = (2 * sums + factor**2) // (2 * factor**2)
    return means.to(pixels.dtype)
