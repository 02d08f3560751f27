"""Drawings of attention: a heat map with one column per key and one row per query."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from triptych.files.drawing import GREY, fonts_of_every_script, new_figure, png

if TYPE_CHECKING:
    from triptych.domains.translation.attention_maps import SentenceAttention

CELL = 0.34
"""Side of a cell in inches."""
MAX_SIDE = 30.0
"""Maximum side of the cells together in inches; longer sentences are scaled down."""


def draw(attended: SentenceAttention, *, encoder: bool) -> list[bytes]:
    """Return PNGs of the cross-attention and, if asked for, of the encoder's self-attention.

    The last one of a model that halts has the steps of each piece, see `draw_steps`.
    Prints the characters that no installed font has.
    """
    heads = "mean of all heads" if attended.head is None else f"head {attended.head}"
    where = f"layer {attended.layer}, {heads}"
    source, target = attended.source_pieces, attended.target_pieces
    drawn = [("cross-attention", attended.cross, target, "translation", "source")]
    if encoder and attended.encoder is not None:
        drawn.append(("self-attention of the encoder", attended.encoder, source, "query", "key"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        drawings = [
            heat_map(weights, rows, source, title=f"{what}, {where}", queries=queries, keys=keys)
            for what, weights, rows, queries, keys in drawn
        ]
        if attended.source_steps is not None:
            drawings.append(draw_steps(attended))
    # matplotlib warns: "Glyph 51200 (...) missing from font(s) DejaVu Sans."
    glyphs = (re.match(r"Glyph (\d+)", str(warning.message)) for warning in caught)
    missing = sorted({chr(int(glyph[1])) for glyph in glyphs if glyph})
    if missing:
        print(
            f"no installed font has a letter for {' '.join(missing)}: the drawing has boxes in "
            "their place; a font such as Noto Sans CJK covers most scripts",
            file=sys.stderr,
        )
    return drawings


def heat_map(
    weights: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    queries: str = "",
    keys: str = "",
) -> bytes:
    """Return a PNG of attention weights [rows][columns]; a darker cell is a larger weight.

    queries, keys: labels of the rows' and columns' axes.
    """
    with fonts_of_every_script():
        width, height = (CELL * len(names) for names in (columns, rows))
        scale = min(1.0, MAX_SIDE / max(width, height))
        figure = new_figure(max(4.5, scale * width + 2.2), max(3.0, scale * height + 1.6), title)
        axes = figure.add_subplot()
        highest = max((max(row) for row in weights), default=1.0)
        image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=highest, aspect="equal")
        size = 10 * scale**0.5
        slanted = max(map(len, columns), default=1) > 2
        axes.set_xticks(
            range(len(columns)),
            columns,
            fontsize=size,
            rotation=45 if slanted else 0,
            ha="left" if slanted else "center",
            rotation_mode="anchor",
        )
        axes.set_yticks(range(len(rows)), rows, fontsize=size)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        # Minor ticks lie between the cells; their grid outlines each cell.
        axes.set_xticks([column - 0.5 for column in range(1, len(columns))], minor=True)
        axes.set_yticks([row - 0.5 for row in range(1, len(rows))], minor=True)
        axes.grid(which="minor", color="#e4e3df", linewidth=0.5)
        axes.tick_params(which="both", length=0)
        axes.set(xlabel=keys, ylabel=queries)
        axes.spines[:].set_visible(False)
        shrink = min(0.8, 2.5 / figure.get_figheight())
        figure.colorbar(image, ax=axes, shrink=shrink, pad=0.02, label="attention weight")
        return png(figure)


def draw_steps(attended: SentenceAttention) -> bytes:
    """Return a PNG of the steps of each piece of a sentence and of its translation, as bars.

    Needs a `SentenceAttention` of a model whose positions halt.
    """
    sides = [
        ("encoder, at each piece of the source", attended.source_pieces, attended.source_steps),
        ("decoder, where it predicts each piece", attended.target_pieces, attended.target_steps),
    ]
    longest = max(len(pieces) for _, pieces, _ in sides)
    with fonts_of_every_script():
        width = min(MAX_SIDE, max(4.5, CELL * longest + 1.2))
        figure = new_figure(width, 4.4)
        for axes, (title, pieces, steps) in zip(figure.subplots(2), sides, strict=True):
            assert steps is not None
            axes.bar(range(len(pieces)), steps, color="#4c86b8")
            slanted = max(map(len, pieces), default=1) > 2
            axes.set_xticks(
                range(len(pieces)),
                pieces,
                rotation=45 if slanted else 0,
                ha="right" if slanted else "center",
                rotation_mode="anchor",
            )
            axes.set_xlim(-0.6, longest - 0.4)
            axes.set_ylim(0, max(1.0, *(max(side[2] or [0]) for side in sides)) + 0.2)
            axes.yaxis.get_major_locator().set_params(integer=True)
            axes.set_ylabel("steps")
            axes.set_title(title, fontsize=9, loc="left", color=GREY)
            axes.spines[["top", "right"]].set_visible(False)
        return png(figure)


def draw_steps_by_length(sentences: Sequence[SentenceAttention]) -> bytes:
    """Return a PNG of the mean number of steps over the pieces of a sentence, by their number.

    Needs sentences of a model whose positions halt.
    """
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(6, 3.6)
    axes = figure.add_subplot()
    highest = 0.0
    for label, marker in (("encoder", "o"), ("decoder", "x")):
        sides = [one.source_steps if label == "encoder" else one.target_steps for one in sentences]
        steps = [side for side in sides if side]
        means = [sum(side) / len(side) for side in steps]
        axes.scatter([len(side) for side in steps], means, marker=marker, label=label)
        highest = max([highest, *means])
    axes.set(xlabel="pieces of the sentence, with its end", ylabel="steps, mean of the pieces")
    axes.set_ylim(0, highest * 1.1 + 0.1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return png(figure)
