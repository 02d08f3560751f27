"""Options and names of result files that the domains of images share. Imports nothing heavy."""

from dataclasses import dataclass

from triptych.domains.options import FolderOptions
from triptych.errors import UserError
from triptych.types import Seed

GRID, DRAWING, NUMBERS = "grid.png", "attention.png", "attention.json"
SAMPLE = "sample-{:04d}.png"
"""Name of a sampled image's file, by its number."""


@dataclass(frozen=True)
class Reading:
    """How the values of image files become 0 to 255, the same for all images of a model."""

    background: str = "white"
    """Colour below transparent pixels, as Pillow's ImageColor names it."""
    value_range: tuple[float, float] | None = None
    """Values that become 0 and 255 where images have more than 8 bits; None refuses these."""

    def __post_init__(self) -> None:
        from PIL import ImageColor

        try:
            ImageColor.getrgb(self.background)
        except ValueError:
            raise ValueError(
                f"background is {self.background!r}; expected a colour such as black or #8090a0"
            ) from None
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise ValueError(
                f"value_range is {list(self.value_range)}; expected a smaller and a larger value"
            )


@dataclass(frozen=True, kw_only=True)
class PixelOptions(FolderOptions):
    """Options of `triptych attention` about an image and the pixels whose attention is drawn."""

    out: str
    """Folder for attention.png and attention.json; created if missing."""
    seed: Seed = 0
    """Seed of the sampled image."""
    label: int = 0
    """Class of the image, a number from 0, for class-conditional models."""
    row: int | None = None
    """Row of the pixel, from 0; null, with column, for six pixels of the image."""
    column: int | None = None
    """Column of the pixel, from 0; null, with row, for six pixels of the image."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.row is None) != (self.column is None):
            raise ValueError(
                f"row and column name a pixel together, got row {self.row} and column {self.column}"
            )

    def output_names(self) -> list[str]:
        return [DRAWING, NUMBERS]

    def pixels(self, height: int, width: int) -> list[tuple[int, int]]:
        """Return the pixel (row, column) of the options, or six spread over an image.

        Raises UserError for a pixel that the image does not have.
        """
        if self.row is None or self.column is None:  # six, without the upper left corner
            rows, columns = [height // 3, 2 * height // 3], [width // 6, width // 2, 5 * width // 6]
            return [(row, column) for row in rows for column in columns]
        if not (0 <= self.row < height and 0 <= self.column < width):
            raise UserError(
                f"there is no pixel in row {self.row} and column {self.column}; the image has "
                f"{height} rows and {width} columns, from 0"
            )
        return [(self.row, self.column)]
