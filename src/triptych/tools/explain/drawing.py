"""What several figures draw: heat maps and animations."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from triptych.files.drawing import cell_grid, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAST = 2500
"""Duration of the last frame of an animation, in milliseconds."""


def animation(frames: Sequence[Figure], *, milliseconds: int) -> bytes:
    """Return figures of one size as an endless GIF. milliseconds: of each one but the last."""
    from PIL import Image

    images = []
    for figure in frames:
        drawn = Image.open(io.BytesIO(png(figure))).convert("RGB")
        # Maximum coverage keeps colours of few pixels.
        images.append(drawn.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE))
    durations = [milliseconds] * (len(images) - 1) + [LAST]
    content = io.BytesIO()
    images[0].save(
        content, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0
    )
    return content.getvalue()


def heat(
    axes: Axes, weights: Any, rows: Sequence[str], columns: Sequence[str], *, title: str = ""
) -> Any:
    """Draw attention weights [rows][columns], 0 to 1, with their labels; return the image."""
    values = np.asarray(weights)
    image = axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    slanted = max(map(len, columns), default=1) > 2
    axes.set_xticks(range(len(columns)), columns, rotation=90 if slanted else 0)
    axes.set_yticks(range(len(rows)), rows)
    cell_grid(axes, *values.shape)
    axes.tick_params(which="both", length=0, labelsize=7)
    axes.set_title(title, fontsize=9)
    axes.spines[:].set_visible(False)
    return image
