"""Costs of layers as text and as a plot over the length of the sequence."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.files.drawing import COLOURS, new_figure, png
from triptych.tools.complexity.model import ModelCost
from triptych.tools.complexity.table import Row

HEADINGS = ("layer", "order", "length", "parameters", "FLOPs", "sequential", "path", "kept MiB")
TIMES = ("forward ms", "training ms", "ratio")
PANELS = (
    ("flops", "operations of the forward pass"),
    ("kept_bytes", "bytes kept for the backward pass"),
    ("training_seconds", "seconds of forward and backward pass"),
)
"""Fields of a row that are plotted, and their titles."""


def model_text(cost: ModelCost) -> str:
    """Return the costs of the whole model on one batch as lines of text."""
    return "\n".join(
        (
            f"{cost.parameters:,} parameters",
            f"a batch of {cost.targets:,} predicted values, sequences of at most {cost.length:,}:",
            f"  {cost.flops / 1e9:,.2f} GFLOP in the forward pass, three times as many in training",
            f"  {cost.kept_bytes / 2**20:,.1f} MiB of activations kept for the backward pass",
        )
    )


def as_text(rows: Sequence[Row]) -> str:
    """Return the table of layers as lines of aligned columns."""
    timed = any(row.training_seconds is not None for row in rows)
    first = {row.length: row for row in reversed(rows)}  # times are compared with the first layer
    lines: list[tuple[str, ...]] = [HEADINGS + TIMES if timed else HEADINGS]
    for row in rows:
        cells: tuple[str, ...] = (
            row.layer,
            f"O({row.order})" if row.order else "",
            f"{row.length:,}",
            f"{row.parameters:,}",
            f"{row.flops:,}",
            f"{row.sequential_operations:,}",
            "none" if row.longest_path is None else f"{row.longest_path:,}",
            f"{row.kept_bytes / 2**20:.2f}",
        )
        if row.forward_seconds is not None and row.training_seconds is not None:
            yardstick = first[row.length].training_seconds
            assert yardstick is not None
            cells += (
                f"{1e3 * row.forward_seconds:.2f}",
                f"{1e3 * row.training_seconds:.2f}",
                f"{row.training_seconds / yardstick:.2f}",
            )
        lines.append(cells)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < 2 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in lines
    )


def plot(rows: Sequence[Row]) -> bytes:
    """Return costs over the length, on logarithmic axes, as PNG."""
    panels = [(name, title) for name, title in PANELS if getattr(rows[0], name) is not None]
    figure = new_figure(4.2 * len(panels), 3.8)
    layers = list(dict.fromkeys(row.layer for row in rows))
    lengths = sorted({row.length for row in rows})
    for number, (name, title) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        for index, layer in enumerate(layers):
            curve = [row for row in rows if row.layer == layer]
            axes.loglog(
                [row.length for row in curve],
                [getattr(row, name) for row in curve],
                marker="o",
                markersize=3,
                color=COLOURS[index % len(COLOURS)],
                linestyle="-" if index < len(COLOURS) else "--",
                label=layer,
            )
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("length, positions")
        axes.set_xticks(lengths, labels=[f"{length:,}" for length in lengths])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        if number == 0:
            axes.legend(fontsize=7)
    return png(figure)
