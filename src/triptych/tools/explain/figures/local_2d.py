"""Query and memory blocks of local 2-D attention, step by step (Parmar et al. 2018, figure 1)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.attention.local2d import Local2D
from triptych.domains.pictures.render import outline
from triptych.files.drawing import BLUE, GREEN, RED, new_figure, png
from triptych.tools.explain.drawing import cell_grid
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

SIDE, BLOCK, HALO = 12, 4, 2
"""Height and width of the image and of a block, and width of the halo, in pixels."""
PIXELS = ((0, 2), (2, 5), (5, 5), (5, 9), (10, 6))
"""Rows and columns of the queries."""
Order = Literal["raster", "blocks"]


class Step(NamedTuple):
    """The positions that matter for one query: bool [H, W] each."""

    before: NDArray[np.bool_]
    """Before the query in the order of generation."""
    visible: NDArray[np.bool_]
    """Keys that the query sees, its own position included."""
    query_block: NDArray[np.bool_]
    """Queries that share one window of keys."""
    memory_block: NDArray[np.bool_]
    """Keys that some query of the block sees."""


def steps(order: Order) -> list[Step]:
    """Return the positions for each query of `PIXELS`, from the mask rule."""
    shape = (SIDE, SIDE)
    attention = Local2D(BLOCK, BLOCK, halo_up=HALO, halo_side=HALO, order=order)
    generation, pattern = attention.order_of(shape), attention.mask_pattern(shape, causal=True)
    assert pattern.windows is not None
    positions = torch.arange(generation.length)  # [L]
    block_of = pattern.windows.block_of(positions)  # [L]
    sees = pattern.visible(positions.unsqueeze(1), positions)  # [L, L]
    queries = []
    for row, column in PIXELS:
        query = generation.positions[row, column, 0]
        same_block = block_of == block_of[query]  # [L]
        seen_by_block = sees[same_block].any(0)  # [L]
        rows = torch.stack([positions < query, sees[query], same_block, seen_by_block])  # [4, L]
        queries.append(Step(*generation.to_images(rows)[..., 0].numpy()))
    return queries


def draw(options: ExplainOptions, model: None) -> Content:
    """Return one row of panels for each order of generation."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    figure = new_figure(
        2.2 * len(PIXELS),
        5.2,
        "red: position of the query; grey: generated before; blue: keys that the query sees\n"
        "solid: query block; dashed: memory block, the keys that some query of the block sees",
    )
    panels = figure.subplots(2, len(PIXELS))
    colours = ListedColormap(["white", "#d9d7d0", "#9dbbe6"])
    orders: tuple[Order, ...] = ("raster", "blocks")
    for order, of_order in zip(orders, panels, strict=True):
        for (row, column), step, axes in zip(PIXELS, steps(order), of_order, strict=True):
            kinds = np.where(step.visible, 2, step.before)
            axes.imshow(kinds, cmap=colours, vmin=0, vmax=2)
            cell_grid(axes, SIDE, SIDE)
            axes.grid(which="minor", color="#efede8", linewidth=0.6)
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=RED))
            for block, style, colour in (
                (step.memory_block, "dashed", GREEN),
                (step.query_block, "solid", BLUE),
            ):
                lines = LineCollection(outline(block), linestyle=style, colors=colour)
                lines.set_linewidth(1.6)
                axes.add_collection(lines)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.tick_params(which="both", length=0)
            axes.set_title(f"row {row}, column {column}", fontsize=8)
        of_order[0].set_ylabel(f"order: {order}", fontsize=9)
    return {"local-2d.png": png(figure)}


FIGURE = Figure(files=("local-2d.png",), draw=draw)
