"""Attention between two sentences as a PNG: one column per key, one row per query."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Sequence

DEFAULT_FONT = "DejaVu Sans"
"""Font that comes with matplotlib."""
PREFERRED_FONTS = (
    "Noto Sans CJK", "Source Han Sans", "Noto Sans KR", "Noto Sans SC", "Nanum", "Malgun Gothic",
    "Apple SD Gothic", "PingFang", "Hiragino Sans", "Microsoft YaHei", "WenQuanYi", "Droid Sans",
    "Noto Serif CJK", "Arial Unicode", "Unifont", "Noto Sans",
)  # fmt: skip
"""First words of the names of fonts that cover many scripts, best first."""

CELL = 0.34
"""Side of a cell in inches."""
MAX_SIDE = 30.0
"""Maximum side of the cells together in inches; longer sentences are scaled down."""
DOTS_PER_INCH = 110


def fonts_for(characters: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return installed fonts that together cover the characters, and the characters none covers."""
    from matplotlib import font_manager

    missing = {character for character in characters if not character.isspace()}
    chosen = []
    for name in [DEFAULT_FONT, *installed_fonts()]:
        try:
            font = font_manager.get_font(font_manager.findfont(name, fallback_to_default=False))
            found = {character for character in missing if ord(character) in font.get_charmap()}
        except (OSError, RuntimeError, ValueError):  # deleted since, or not readable by FreeType
            continue
        if name == DEFAULT_FONT or (found and font.scalable):
            chosen.append(name)
            missing -= found
        if not missing:
            break
    return chosen or [DEFAULT_FONT], missing


def installed_fonts() -> list[str]:
    """Return the names of the installed fonts among `PREFERRED_FONTS`, best first."""
    from matplotlib import font_manager

    names = {font.name for font in font_manager.fontManager.ttflist}
    ranked = [
        (rank, name)
        for name in names
        for rank, start in enumerate(PREFERRED_FONTS)
        if name.startswith(start)
    ]
    return list(dict.fromkeys(name for _, name in sorted(ranked)))


def heat_map(
    weights: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    queries: str = "",
    keys: str = "",
    families: Sequence[str] = (DEFAULT_FONT,),
) -> bytes:
    """Return a PNG of attention weights [rows][columns]; a darker cell is a larger weight.

    queries, keys: labels of the rows' and columns' axes. families: fonts, see `fonts_for`.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # parse_math would read two dollar signs in a piece as a formula.
    with (
        matplotlib.rc_context({"font.family": list(families), "text.parse_math": False}),
        warnings.catch_warnings(),
    ):
        # `fonts_for` returns the characters without a glyph to the caller.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        width, height = (CELL * len(names) for names in (columns, rows))
        scale = min(1.0, MAX_SIDE / max(width, height))
        figure = Figure(
            figsize=(max(4.5, scale * width + 2.2), max(3.0, scale * height + 1.6)),
            dpi=DOTS_PER_INCH,
            layout="constrained",
        )
        FigureCanvasAgg(figure)  # needs no display
        axes = figure.add_subplot()
        highest = max((max(row) for row in weights), default=1.0)
        image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=highest, aspect="equal")
        size = 10 * scale**0.5
        axes.set_xticks(range(len(columns)), columns, fontsize=size)
        if max(map(len, columns), default=1) > 2:
            for label in axes.get_xticklabels():
                label.set(rotation=45, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(len(rows)), rows, fontsize=size)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.tick_params(length=0)
        axes.set_xticks([column - 0.5 for column in range(1, len(columns))], minor=True)
        axes.set_yticks([row - 0.5 for row in range(1, len(rows))], minor=True)
        axes.grid(which="minor", color="#e4e3df", linewidth=0.5)
        axes.tick_params(which="minor", length=0)
        axes.set_xlabel(keys)
        axes.set_ylabel(queries)
        for spine in axes.spines.values():
            spine.set_visible(False)
        shrink = min(0.8, 2.5 / figure.get_figheight())
        figure.colorbar(image, ax=axes, shrink=shrink, pad=0.02, label="attention weight")
        if title:
            figure.suptitle(title, fontsize=9, color="#5f6b73")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
