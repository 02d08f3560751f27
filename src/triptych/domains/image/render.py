"""PNG files of images, grids of images and attention maps.

Levels are scaled to 0..255 in integers by a fixed rule: white stays white, and the scale does not
depend on the content, as with `torchvision.utils.make_grid(normalize=True)`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from triptych.training.files import write_atomically

GRID_LINE_GREY = 96
"""Grey of the lines between the images of a grid, neither black nor white."""
ATTENTION_COLUMNS = 3
"""Attention maps per row of a drawing."""
DOTS_PER_INCH = 110


def to_bytes(pixels: NDArray[np.uint8] | Tensor, levels: int) -> NDArray[np.uint8]:
    """Scale values 0 .. levels-1 to 0 .. 255 with rounding, in integers: uint8, the same shape.

    The first level becomes 0 and the last 255; 256 levels stay as they are.
    Raises ValueError for fewer than two levels and for a value outside of the levels.
    """
    values = np.asarray(pixels).astype(np.int64)
    if levels < 2:
        raise ValueError(f"images need at least two levels, not {levels}")
    if values.size and (values.min() < 0 or values.max() >= levels):
        raise ValueError(
            f"values {values.min()} to {values.max()} are not all among the {levels} levels"
        )
    scaled = (values * 255 + (levels - 1) // 2) // (levels - 1)
    return scaled.astype(np.uint8)


def image_grid(
    pixels: NDArray[np.uint8] | Tensor,
    levels: int,
    *,
    columns: int | None = None,
    zoom: int = 1,
    line: int = 1,
) -> NDArray[np.uint8]:
    """Arrange images [N, H, W, C] row by row: uint8 [grid height, grid width, C].

    columns: images per row, by default about the square root of N.
    zoom: factor of enlargement. line: width of the grey lines between images, in pixels.
    """
    scaled = to_bytes(pixels, levels).repeat(zoom, axis=1).repeat(zoom, axis=2)  # [N, zH, zW, C]
    count, height, width, channels = scaled.shape
    columns = min(count, columns or math.ceil(math.sqrt(count)))
    rows = math.ceil(count / columns)
    size = (line + rows * (height + line), line + columns * (width + line), channels)
    grid = np.full(size, GRID_LINE_GREY, dtype=np.uint8)
    for index, image in enumerate(scaled):
        top = line + index // columns * (height + line)
        left = line + index % columns * (width + line)
        grid[top : top + height, left : left + width] = image
    return grid


def class_columns(count: int, n_classes: int) -> int | None:
    """Return the columns of a grid with one class per column; None for no or too many classes."""
    return n_classes if 0 < n_classes <= 16 and n_classes < count else None


def write_png(path: str | Path, pixels: NDArray[np.uint8]) -> Path:
    """Write uint8 [H, W, C] with C 1 or 3 as PNG, as in `write_atomically`, and return the path."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(content, format="PNG")
    return write_atomically(path, content.getvalue())


def write_grid(
    path: str | Path,
    pixels: NDArray[np.uint8] | Tensor,
    levels: int,
    *,
    columns: int | None = None,
) -> NDArray[np.uint8]:
    """Write images [N, H, W, C] as one PNG grid and return the grid: uint8 [H', W', C].

    Images smaller than 96 pixels are enlarged by the largest integer that keeps them below.
    """
    zoom = max(1, 96 // max(pixels.shape[1:3]))
    grid = image_grid(pixels, levels, columns=columns, zoom=zoom, line=2)
    write_png(path, grid)
    return grid


def write_images(folder: str | Path, pixels: NDArray[np.uint8] | Tensor, levels: int) -> list[Path]:
    """Write images [N, H, W, C] as `sample-0000.png`, ... in their own size; return the paths."""
    return [
        write_png(Path(folder) / f"sample-{index:04d}.png", image)
        for index, image in enumerate(to_bytes(pixels, levels))
    ]


def draw_attention(
    image: NDArray[np.uint8],
    levels: int,
    pixels: Sequence[tuple[int, int]],
    maps: NDArray[np.float64],
    *,
    title: str = "",
) -> bytes:
    """Draw attention maps over an image and return a PNG.

    image: [H, W, C], shown in grey. maps: [len(pixels), H, W], each shown in red over the image
    and scaled by its own maximum, with its predicted pixel (row, column) framed in blue.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    grey = to_bytes(image, levels).mean(-1) / 255  # [H, W]
    background = 1 - 0.45 * grey[..., None]  # light, so that red is visible on it
    n_rows = -(-len(pixels) // ATTENTION_COLUMNS)
    n_columns = min(ATTENTION_COLUMNS, len(pixels))
    size = (3 * n_columns, 3 * n_rows + 0.5)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # needs no display
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    red = np.array([0.784, 0.267, 0.235])
    for panel, (row, column), weights in zip(panels.flat, pixels, maps, strict=False):
        strength = (weights / max(float(weights.max()), 1e-9))[..., None] ** 0.5  # [H, W, 1]
        panel.imshow(background * (1 - strength) + red * strength, vmin=0, vmax=1)
        corner = (column - 0.5, row - 0.5)
        panel.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#33589c", linewidth=2))
        panel.set_title(f"row {row}, column {column}", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=9, color="#5f6b73")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
