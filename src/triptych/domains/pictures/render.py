"""PNG files of images, grids of images and attention maps.

Levels are scaled to 0..255 in integers by a fixed rule: white stays white, and the scale does not
depend on the content, as with `torchvision.utils.make_grid(normalize=True)`.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.options import counted
from triptych.domains.pictures.options import DRAWING, GRID, NUMBERS, SAMPLE
from triptych.files.drawing import BLUE, GREEN, new_figure, png
from triptych.files.results import OutputFolder, json_bytes, write_atomically

GRID_LINE_GREY = 96
"""Grey of the lines between the images of a grid, neither black nor white."""
GRID_LINE = 2
"""Width of these lines, in pixels."""
HIDDEN = (94, 130, 181)
"""Colour of pixels that are not given, a blue that no grey image has."""
ATTENTION_COLUMNS = 3
"""Attention maps per row of a drawing."""
BLOCK_LINES = (("solid", BLUE), ("dashed", GREEN))
"""Line style and colour of the outlines of the query block and the memory block."""

Blocks = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""Query block and memory block: bool [H, W]."""


def to_bytes(pixels: NDArray[np.uint8] | Tensor, levels: int) -> NDArray[np.uint8]:
    """Scale values 0 .. levels-1 to 0 .. 255 with rounding, in integers: uint8, the same shape.

    The first level becomes 0 and the last 255; 256 levels stay as they are.
    """
    values = np.asarray(pixels).astype(np.int64)
    scaled = (values * 255 + (levels - 1) // 2) // (levels - 1)
    return scaled.astype(np.uint8)


def to_levels(scaled: NDArray[np.uint8], levels: int) -> NDArray[np.uint8]:
    """Return 8-bit values as levels 0 .. levels-1, the inverse of `to_bytes`.

    The nearest level; where the levels are a power of two, that of `ImageDataset.quantize`.
    """
    if 256 % levels == 0:
        return (scaled.astype(np.int64) // (256 // levels)).astype(np.uint8)
    values = scaled.astype(np.int64)
    return ((values * (levels - 1) + 127) // 255).astype(np.uint8)


def png_content(pixels: NDArray[np.uint8]) -> bytes:
    """Return uint8 [H, W, C] with C 1 or 3 as the content of a PNG file."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(content, format="PNG")
    return content.getvalue()


def write_png(path: str | Path, pixels: NDArray[np.uint8]) -> Path:
    """Write an image of `png_content`, as in `write_atomically`, and return the path."""
    return write_atomically(path, png_content(pixels))


def write_samples(out: OutputFolder, pixels: NDArray[np.uint8], levels: int) -> str:
    """Write each image [H, W, C] of a grid as a PNG; return one sentence about all files."""
    for number, image in enumerate(to_bytes(pixels, levels)):
        write_png(out.path / SAMPLE.format(number), image)
    return f"{counted(len(pixels), 'image', 'images')} and {GRID} are in {out}"


def write_grid(
    path: str | Path, pixels: NDArray[np.uint8] | Tensor, levels: int, n_classes: int = 0
) -> NDArray[np.uint8]:
    """Write images [N, H, W, C] row by row as one PNG and return it: uint8 [H', W', C].

    Up to 16 classes, which the images have in turn, are a column each; otherwise there are about as
    many columns as rows. Images smaller than 96 pixels are enlarged by the largest integer that
    keeps them below.
    """
    scaled = to_bytes(pixels, levels)
    columns = math.ceil(math.sqrt(len(scaled)))
    if 0 < n_classes <= 16 and n_classes < len(scaled):
        columns = n_classes
    grid = lay_out(scaled, columns)
    write_png(path, grid)
    return grid


def write_rows(path: str | Path, columns: Sequence[NDArray[np.uint8]]) -> None:
    """Write one row per picture as one PNG.

    columns: each uint8 [N, H, W, C], 8-bit values of one image of every row. Images are enlarged as
    in `write_grid`.
    """
    cells = np.stack(list(columns), axis=1)  # [N, columns, H, W, C]
    write_png(path, lay_out(cells.reshape(-1, *cells.shape[2:]), len(columns)))


def repeat(pixels: Tensor, factor: int) -> Tensor:
    """Return images enlarged without interpolation: [N, h, w, C] -> [N, h factor, w factor, C]."""
    return pixels.repeat_interleave(factor, 1).repeat_interleave(factor, 2)


def hide(scaled: NDArray[np.uint8], hidden: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Show pixels in one colour: 8-bit [N, H, W, C], hidden [H, W] -> RGB [N, H, W, 3]."""
    shown = in_colour(scaled)
    shown[:, hidden] = HIDDEN
    return shown


def in_colour(scaled: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return grey or RGB images as RGB: [N, H, W, C] -> [N, H, W, 3]."""
    return np.broadcast_to(scaled, (*scaled.shape[:-1], 3)).copy()


def lay_out(scaled: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    """Return images [N, H, W, C] row by row in one, enlarged as in `write_grid`."""
    zoom = max(1, 96 // max(scaled.shape[1:3]))
    scaled = scaled.repeat(zoom, axis=1).repeat(zoom, axis=2)
    missing = -len(scaled) % columns
    padding = ((0, missing), (0, GRID_LINE), (0, GRID_LINE), (0, 0))
    cells = np.pad(scaled, padding, constant_values=GRID_LINE_GREY)
    grid = rearrange(cells, "(rows columns) h w c -> (rows h) (columns w) c", columns=columns)
    border = ((GRID_LINE, 0), (GRID_LINE, 0), (0, 0))
    return np.pad(grid, border, constant_values=GRID_LINE_GREY)


@dataclass(frozen=True)
class PixelAttention:
    """Attention weights that predicted some pixels of an image."""

    image: NDArray[np.uint8]
    """[H, W, C], shown in grey."""
    levels: int
    pixels: Sequence[tuple[int, int]]
    """Row and column of each of P predicted pixels, framed in blue."""
    maps: NDArray[np.float64]
    """[P, H, W], each shown in red over the image and scaled by its own maximum."""
    blocks: Sequence[Blocks] = ()
    """Query block and memory block of each pixel, outlined solid and dashed."""
    title: str = ""

    def write(self, out: OutputFolder, **about: Any) -> str:
        """Write picture and numbers; return one sentence. about: what else the numbers say."""
        out.write(DRAWING, self.draw())
        numbers: list[dict[str, Any]] = [
            {"row": row, "column": column, "weights": weights.tolist()}
            for (row, column), weights in zip(self.pixels, self.maps, strict=True)
        ]
        for of_pixel, (query_block, memory_block) in zip(numbers, self.blocks, strict=False):
            of_pixel["query_block"] = np.argwhere(query_block).tolist()
            of_pixel["memory_block"] = np.argwhere(memory_block).tolist()
        content = {**about, "image": self.image.tolist(), "pixels": numbers}
        out.write(NUMBERS, json_bytes(content))
        return f"{DRAWING} and {NUMBERS} are in {out}"

    def draw(self) -> bytes:
        """Return a PNG with a panel for each pixel."""
        from matplotlib.collections import LineCollection
        from matplotlib.patches import Rectangle

        grey = to_bytes(self.image, self.levels).mean(-1) / 255  # [H, W]
        background = 1 - 0.45 * grey[..., None]  # light, so that red is visible on it
        n_rows = -(-len(self.pixels) // ATTENTION_COLUMNS)
        n_columns = min(ATTENTION_COLUMNS, len(self.pixels))
        figure = new_figure(3 * n_columns, 3 * n_rows + 0.5, self.title)
        panels = figure.subplots(n_rows, n_columns, squeeze=False)
        for panel in panels.flat:
            panel.set_axis_off()
        red = np.array([0.784, 0.267, 0.235])
        blocks: Sequence[Any] = self.blocks or [()] * len(self.pixels)
        for panel, (row, column), weights, drawn in zip(
            panels.flat, self.pixels, self.maps, blocks, strict=False
        ):
            strength = (weights / max(float(weights.max()), 1e-9))[..., None] ** 0.5  # [H, W, 1]
            panel.imshow(background * (1 - strength) + red * strength, vmin=0, vmax=1)
            corner = (column - 0.5, row - 0.5)
            panel.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=BLUE, linewidth=2))
            for block, (style, colour) in zip(drawn, BLOCK_LINES, strict=False):
                lines = LineCollection(outline(block), linestyle=style, colors=colour)
                panel.add_collection(lines)
            panel.set_title(f"row {row}, column {column}", fontsize=9)
        return png(figure)


def outline(block: NDArray[np.bool_]) -> list[list[tuple[float, float]]]:
    """Return the edges between the cells of a block and the others, as lines of two points (x, y).

    block: [H, W]; cell (row, column) reaches from column - 0.5 to column + 0.5.
    """
    padded = np.pad(block, 1)
    between_rows = np.argwhere(padded[:-1] != padded[1:]) - 0.5
    between_columns = np.argwhere(padded[:, :-1] != padded[:, 1:]) - 0.5
    return [
        *([(x - 1, y), (x, y)] for y, x in between_rows),
        *([(x, y - 1), (x, y)] for y, x in between_columns),
    ]
