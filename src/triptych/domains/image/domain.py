"""Domain of images: the options of its commands."""

from __future__ import annotations

from dataclasses import dataclass

from triptych.domains.base import Domain
from triptych.domains.options import AttentionOptions, SampleOptions
from triptych.errors import check_seed

GRID, DRAWING, NUMBERS = "grid.png", "attention.png", "attention.json"


@dataclass(frozen=True, kw_only=True)
class ImageSampleOptions(SampleOptions):
    """Options of `triptych sample image`."""

    out: str
    """Folder for grid.png and one PNG per image; created if missing."""
    count: int = 16
    """Number of images."""
    label: int | None = None
    """Class of the images, a number from 0, for class-conditional models; null for all in turn."""

    def output_names(self) -> list[str]:
        return [GRID, *self.image_names()]

    def image_names(self) -> list[str]:
        """Return the name of each image's file."""
        return [f"sample-{index:04d}.png" for index in range(self.count)]


@dataclass(frozen=True, kw_only=True)
class ImageAttentionOptions(AttentionOptions):
    """Options of `triptych attention image`."""

    out: str
    """Folder for attention.png and attention.json; created if missing."""
    seed: int = 0
    """Seed of the sampled image."""
    label: int = 0
    """Class of the image, a number from 0, for class-conditional models."""
    row: int | None = None
    """Row of the predicted pixel, from 0; null, with column, for six pixels of the image."""
    column: int | None = None
    """Column of the predicted pixel, from 0; null, with row, for six pixels of the image."""

    description = (
        "Sample an image and draw the attention weights that predicted some of its pixels."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.row is None) != (self.column is None):
            raise ValueError(
                f"row and column name a pixel together, got row {self.row} and column {self.column}"
            )
        check_seed(self.seed)

    def output_names(self) -> list[str]:
        return [DRAWING, NUMBERS]


class ImageDomain(Domain):
    """Images as sequences of pixels."""

    name = "image"
    sample_options = ImageSampleOptions
    attention_options = ImageAttentionOptions


DOMAIN = ImageDomain()
