"""Figures of matplotlib as PNG files, with fonts of every script and without a display."""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded only where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 100
GREY = "#5f6b73"
"""Colour of titles and captions."""
BLUE, GREEN, RED = "#33589c", "#2c7a4b", "#c8443c"
COLOURS = (BLUE, RED, GREEN, "#b7791f", "#6b4e9b")
"""Colours of lines and bars that are compared, in their order."""
DEFAULT_FONT = "DejaVu Sans"
"""Font that comes with matplotlib."""
PREFERRED_FONTS = (
    "Noto Sans CJK", "Source Han Sans", "Noto Sans KR", "Noto Sans SC", "Nanum", "Malgun Gothic",
    "Apple SD Gothic", "PingFang", "Hiragino Sans", "Microsoft YaHei", "WenQuanYi", "Droid Sans",
    "Noto Serif CJK", "Arial Unicode", "Unifont", "Noto Sans",
)  # fmt: skip
"""First words of the names of fonts that cover many scripts, best first."""
FONT_PACKAGE, FONT_FILE = "noto_cjk_sans_jp_regular", "NotoSansCJKjp-Regular.otf"
"""What the extra `fonts` installs: Noto Sans CJK, with the letters of Korean and Chinese too."""


def new_figure(width: float, height: float, title: str = "", *, fitted: bool = True) -> Figure:
    """Return an empty figure in inches; fitted: panels move with labels, unwanted in animations."""
    from matplotlib.figure import Figure

    layout: Any = "constrained" if fitted else None
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout=layout)
    if title:
        figure.suptitle(title, fontsize=10, color=GREY)
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def cell_grid(
    axes: Axes, n_rows: int, n_columns: int, *, colour: str = "white", width: float = 0.8
) -> None:
    """Draw thin lines between the cells of a matrix."""
    axes.set_xticks([column - 0.5 for column in range(1, n_columns)], minor=True)
    axes.set_yticks([row - 0.5 for row in range(1, n_rows)], minor=True)
    axes.grid(which="minor", color=colour, linewidth=width)


@contextmanager
def fonts_of_every_script() -> Iterator[None]:
    """Draw text with the installed fonts that cover most scripts; dollar signs are no formulas."""
    import matplotlib

    with matplotlib.rc_context({"font.family": installed_fonts(), "text.parse_math": False}):
        yield


@contextmanager
def missing_letters_told() -> Iterator[None]:
    """Name the letters of drawings that no installed font has, once, in place of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    # matplotlib warns: "Glyph 51200 (...) missing from font(s) DejaVu Sans."
    letters = set()
    for one in caught:
        if glyph := re.match(r"Glyph (\d+)", str(one.message)):
            letters.add(chr(int(glyph[1])))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    missing = sorted(letters)
    if missing:
        print(
            f"no installed font has a letter for {' '.join(missing)}: the drawing has boxes in "
            "their place; the extra triptych[fonts] brings Noto Sans CJK, which covers Korean, "
            "Chinese and Japanese",
            file=sys.stderr,
        )


@cache
def installed_fonts() -> list[str]:
    """Return the default font and the installed ones among `PREFERRED_FONTS`, best first."""
    from matplotlib import font_manager

    if find_spec(FONT_PACKAGE) is not None:
        font_manager.fontManager.addfont(str(files(FONT_PACKAGE) / FONT_FILE))
    names = sorted({font.name for font in font_manager.fontManager.ttflist if font.weight == 400})
    ranked = [name for start in PREFERRED_FONTS for name in names if name.startswith(start)]
    return list(dict.fromkeys([DEFAULT_FONT, *ranked]))
