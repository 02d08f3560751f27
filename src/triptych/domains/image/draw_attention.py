"""A image several times, each time with what one pixel was predicted from laid over it."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from triptych.domains.image.attention import Pixel
from triptych.domains.image.grid import to_bytes

COLUMNS = 3
DOTS_PER_INCH = 110


def draw(
    image: NDArray[np.uint8],
    levels: int,
    pixels: Sequence[Pixel],
    maps: NDArray[np.float64],
    *,
    title: str = "",
) -> bytes:
    """Draw a PNG: image [H, W, C] in grey, each map [H, W] over it in red, its pixel in blue.

    A map is as red as its own highest share.
    """
    grey = to_bytes(image, levels).mean(-1) / 255  # [H, W]
    paper = 1 - 0.45 * grey[..., None]  # light, or nothing would be seen over it
    n_rows = -(-len(pixels) // COLUMNS)
    n_columns = min(COLUMNS, len(pixels))
    figure = Figure(
        figsize=(3 * n_columns, 3 * n_rows + 0.5), dpi=DOTS_PER_INCH, layout="constrained"
    )
    FigureCanvasAgg(figure)  # no window system is asked for
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    red = np.array([0.784, 0.267, 0.235])
    for panel, (row, column), shares in zip(panels.flat, pixels, maps, strict=False):
        strength = (shares / max(float(shares.max()), 1e-9))[..., None] ** 0.5  # [H, W, 1]
        panel.imshow(paper * (1 - strength) + red * strength, vmin=0, vmax=1)
        panel.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#33589c", linewidth=2)
        )
        panel.set_title(f"row {row}, column {column}", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=9, color="#5f6b73")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
