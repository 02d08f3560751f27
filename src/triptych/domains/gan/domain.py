"""Domain of images by a GAN: the options of its commands."""

from dataclasses import dataclass

from triptych.domains.base import Domain
from triptych.domains.options import FolderOptions
from triptych.domains.pictures.options import GRID, SAMPLE, PixelOptions
from triptych.types import PositiveInt, Seed


@dataclass(frozen=True, kw_only=True)
class GanSampleOptions(FolderOptions):
    """Generate images from noise."""

    out: str
    """Folder for grid.png and one PNG per image; created if missing."""
    count: PositiveInt = 4
    """Number of images."""
    seed: Seed = 0
    """Seed of the noise; the same seed gives the same images on the same device."""
    label: int | None = None
    """Class of the images, a number from 0, for class-conditional models; null for all in turn."""

    def output_names(self) -> list[str]:
        return [GRID, *map(SAMPLE.format, range(self.count))]


@dataclass(frozen=True, kw_only=True)
class GanAttentionOptions(PixelOptions):
    """Generate an image and draw where the generator looks at some of its pixels."""


class GanDomain(Domain):
    """Images made from noise by a generator, which a discriminator judges."""

    name = "gan"
    packing = "triptych.domains.pictures.config"
    sample_options = GanSampleOptions
    attention_options = GanAttentionOptions
    limits = "Images of another size or kind than its data, and samples in place of real data."


DOMAIN = GanDomain()
