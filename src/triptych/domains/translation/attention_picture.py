"""Attention between two sentences as a picture: a column for what is read, a row for who reads."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Sequence

import matplotlib
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

FIRST = "DejaVu Sans"
"""Comes with matplotlib."""
PREFERRED = (
    "Noto Sans CJK", "Source Han Sans", "Noto Sans KR", "Noto Sans SC", "Nanum", "Malgun Gothic",
    "Apple SD Gothic", "PingFang", "Hiragino Sans", "Microsoft YaHei", "WenQuanYi", "Droid Sans",
    "Noto Serif CJK", "Arial Unicode", "Unifont", "Noto Sans",
)  # fmt: skip
"""How the names of fonts with many scripts begin, best first."""

CELL = 0.34
"""Inches of a piece."""
LARGEST = 30.0
"""Most inches of a side; longer sentences are drawn smaller."""
DOTS_PER_INCH = 110


def fonts_for(letters: Iterable[str]) -> tuple[list[str], set[str]]:
    """Names of installed fonts that have these letters between them, and the letters none has."""
    missing = {letter for letter in letters if not letter.isspace()}
    chosen = []
    for name in [FIRST, *_installed()]:
        try:
            font = font_manager.get_font(font_manager.findfont(name, fallback_to_default=False))
            found = {letter for letter in missing if ord(letter) in font.get_charmap()}
        except (OSError, RuntimeError, ValueError):  # gone since, or not for FreeType
            continue
        if name == FIRST or (found and font.scalable):
            chosen.append(name)
            missing -= found
        if not missing:
            break
    return chosen or [FIRST], missing


def _installed() -> list[str]:
    """Names of the installed fonts that are worth a look, best first."""
    names = {font.name for font in font_manager.fontManager.ttflist}
    ranked = [
        (place, name) for name in names for place, start in enumerate(PREFERRED)
        if name.startswith(start)
    ]  # fmt: skip
    return list(dict.fromkeys(name for _, name in sorted(ranked)))


def heat_map(
    weights: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    reading: str = "",
    read: str = "",
    families: Sequence[str] = (FIRST,),
) -> bytes:
    """Draw weights [rows][columns] as a PNG: the darker the more a row reads of a column.

    reading, read: what rows and columns are. families: fonts, as `fonts_for` gave them.
    """
    # A piece with two dollars in it is no formula.
    settings = {"font.family": list(families), "text.parse_math": False}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")  # the caller knows
        width, height = (CELL * len(names) for names in (columns, rows))
        scale = min(1.0, LARGEST / max(width, height))
        longest = max(map(len, columns), default=1)
        figure = Figure(
            figsize=(max(4.5, scale * width + 2.2), max(3.0, scale * height + 1.6)),
            dpi=DOTS_PER_INCH,
            layout="constrained",
        )
        FigureCanvasAgg(figure)  # no window system is asked for
        axes = figure.add_subplot()
        highest = max((max(row) for row in weights), default=1.0)
        image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=highest, aspect="equal")
        size = 10 * scale**0.5
        slanted = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"} if longest > 2 else {}
        axes.set_xticks(range(len(columns)), columns, fontsize=size, **slanted)
        axes.set_yticks(range(len(rows)), rows, fontsize=size)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.tick_params(length=0)
        axes.set_xticks([place - 0.5 for place in range(1, len(columns))], minor=True)
        axes.set_yticks([place - 0.5 for place in range(1, len(rows))], minor=True)
        axes.grid(which="minor", color="#e4e3df", linewidth=0.5)
        axes.tick_params(which="minor", length=0)
        axes.set_xlabel(read)
        axes.set_ylabel(reading)
        for spine in axes.spines.values():
            spine.set_visible(False)
        shrink = min(0.8, 2.5 / figure.get_figheight())
        figure.colorbar(image, ax=axes, shrink=shrink, pad=0.02, label="share of the reading")
        if title:
            figure.suptitle(title, fontsize=9, color="#5f6b73")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
