"""What the scripts' pictures have in common: a sheet with one set of axes, colours, a frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = ("#33589c", "#c8443c", "#3c8a5f", "#d99a2b", "#7d4f9e", "#5f6b73")
QUIET = "#5f6b73"


def sheet() -> tuple[Any, Any]:
    """A figure of 800 x 400 pixels and its axes; no window system is asked for."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save(figure: Any, axes: Any, path: Path, *, title: str = "") -> None:
    """Draw the frame, the legend and the title, and write a PNG, its folder made."""
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, loc="best")
    if title:
        axes.set_title(title, loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")
