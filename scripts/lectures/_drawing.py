"""What several figures draw: matrices with their values, heat maps, animations."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from triptych.files.drawing import cell_grid, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAST = 2500
"""Duration of the last frame of an animation, in milliseconds."""
UNUSED = "#e4e3df"
"""Colour of cells without a meaning."""


def matrix(
    axes: Axes,
    values: NDArray[np.float64],
    *,
    title: str = "",
    form: str = "{:.2f}",
    unused: NDArray[np.bool_] | None = None,
    limits: tuple[float, float] | None = None,
    colours: str = "Blues",
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> None:
    """Draw a small matrix [rows, columns] with the value in every cell.

    unused: bool of the same shape; these cells are grey and empty. limits: values of the lightest
    and the darkest colour. Cells of minus infinity are grey and say so.
    """
    finite = values[np.isfinite(values)]
    low, high = limits or (float(finite.min()), float(finite.max()))
    shown = np.ma.masked_invalid(values)
    if unused is not None:
        shown = np.ma.masked_where(unused, shown)
    image = axes.imshow(shown, cmap=colours, vmin=low, vmax=high, aspect="equal")
    axes.set_facecolor(UNUSED)
    for (row, column), value in np.ndenumerate(values):
        if unused is not None and unused[row, column]:
            continue
        text = "−∞" if np.isneginf(value) else "0" if value == 0 else form.format(value)
        text = text.replace("-0.00", "0.00").replace("-", "−")
        dark = np.isfinite(value) and sum(image.to_rgba(np.array(value))[:3]) < 1.4
        axes.text(column, row, text, ha="center", va="center", fontsize=8,
                  color="white" if dark else "#222222")  # fmt: skip
    cell_grid(axes, *values.shape)
    axes.set_xticks(range(values.shape[1]), columns or None)
    axes.set_yticks(range(values.shape[0]), rows or None)
    axes.tick_params(which="both", length=0, labelsize=8)
    axes.set_title(title, fontsize=9)


def light_grid(axes: Axes) -> None:
    """Draw light grid lines behind curves."""
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)


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
