"""Images as PNG files: our own integer scaling, so white stays white and no grid is stretched."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
from torch import Tensor

from triptych.training.files import write_whole

BETWEEN = 96
"""the grey of the lines between the images of a grid, neither black nor white"""


def to_bytes(pixels: np.ndarray | Tensor, levels: int) -> np.ndarray:
    """Scale values 0 .. levels-1 to 0 .. 255 with rounding, in integers: uint8, the same shape.

    The first level is always 0 and the last always 255; 256 levels stay as they are. The scale
    never depends on what the images contain. Raises ValueError for a value off the levels.
    """
    values = np.asarray(pixels).astype(np.int64)
    if levels < 2:
        raise ValueError(f"images need at least two levels, not {levels}")
    if values.size and (values.min() < 0 or values.max() >= levels):
        raise ValueError(
            f"values {values.min()} to {values.max()} do not lie on the {levels} levels of the data"
        )
    return ((values * 255 + (levels - 1) // 2) // (levels - 1)).astype(np.uint8)


def image_grid(
    pixels: np.ndarray | Tensor,
    levels: int,
    *,
    columns: int | None = None,
    zoom: int = 1,
    line: int = 1,
) -> np.ndarray:
    """Lay images [N, H, W, C] out row by row: uint8 [grid height, grid width, C].

    columns: images a row, by default about the square root of N.
    zoom: each pixel becomes zoom x zoom pixels. line: width in pixels of the grey lines.
    """
    scaled = to_bytes(pixels, levels).repeat(zoom, axis=1).repeat(zoom, axis=2)  # [N, zH, zW, C]
    count, height, width, channels = scaled.shape
    columns = min(count, columns or math.ceil(math.sqrt(count)))
    rows = math.ceil(count / columns)
    grid = np.full(
        (line + rows * (height + line), line + columns * (width + line), channels),
        BETWEEN,
        dtype=np.uint8,
    )
    for index, image in enumerate(scaled):
        top = line + index // columns * (height + line)
        left = line + index % columns * (width + line)
        grid[top : top + height, left : left + width] = image
    return grid


def fitting_zoom(height: int, width: int, *, target: int = 96) -> int:
    """The largest whole number that keeps a small image within `target` pixels, at least 1."""
    return max(1, target // max(height, width))


def write_png(path: str | Path, image: np.ndarray) -> Path:
    """Write uint8 [H, W, C] (C 1 or 3) as PNG, see `write_whole`."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(content, format="PNG")
    return write_whole(path, content.getvalue())


def write_grid(
    path: str | Path,
    pixels: np.ndarray | Tensor,
    levels: int,
    *,
    columns: int | None = None,
    zoom: int | None = None,
) -> np.ndarray:
    """Write images [N, H, W, C] as one PNG grid and return it: uint8 [H', W', C].

    zoom: see `image_grid`; by default small images are enlarged to be seen.
    """
    height, width = pixels.shape[1:3]
    grid = image_grid(
        pixels, levels, columns=columns, zoom=zoom or fitting_zoom(height, width), line=2
    )
    write_png(path, grid)
    return grid


def write_images(
    folder: str | Path, pixels: np.ndarray | Tensor, levels: int, *, name: str = "sample"
) -> list[Path]:
    """Write images [N, H, W, C] one by one, each pixel one pixel: `sample-0000.png`, ..."""
    return [
        write_png(Path(folder) / f"{name}-{index:04d}.png", image)
        for index, image in enumerate(to_bytes(pixels, levels))
    ]
