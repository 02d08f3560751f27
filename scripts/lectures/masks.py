"""What a query sees: the look-ahead mask with its numbers, and the patterns of the variants."""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from triptych.core.attention.compressed import Compressed, CompressedPattern
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig, MultiHeadAttention
from triptych.core.attention.relative import Relative
from triptych.domains.pictures.render import BLOCK_LINES, outline
from triptych.files.drawing import RED, cell_grid, new_figure
from triptych.tools.explain.figure import figure

from ._drawing import matrix

LENGTH, D_MODEL = 5, 16
"""Positions and features of the layer whose mask is shown."""
SHAPE = (4, 6)
"""Height and width of the image whose pixels are the positions of the patterns."""
VARIANTS: dict[str, tuple[AttentionConfig, bool]] = {
    "full, of an encoder": (Full(), False),
    "full, causal": (Full(), True),
    "window of 6 positions": (Relative(window=6), True),
    "local 1-D, block 6, memory 6": (Local1D(block=6, memory=6), True),
    "local 2-D, 4x6 pixels in raster order,\nblock 2x3, halo 1": (Local2D(2, 3, 1, 1), True),
    "compressed, stride 3\n(light: part of a compressed key)": (Compressed(3), True),
}
"""Name -> variant, and whether it is causal."""
SIDE, BLOCK, HALO = 12, 4, 2
"""Height and width of the image and of a block, and width of the halo, in pixels."""
PIXELS = ((0, 2), (2, 5), (5, 5), (5, 9), (10, 6))
"""Rows and columns of the queries of local 2-D attention."""
Order = Literal["raster", "blocks"]


class Masking(NamedTuple):
    """Matrices [query, key] of one head."""

    logits: NDArray[np.float64]
    """q k^T / sqrt(E)."""
    mask: NDArray[np.float64]
    """0 where the query sees the key, else minus infinity; as a decoding step adds it."""
    weights: NDArray[np.float64]
    """Softmax of their sum, as the layer computes it."""


def masking(seed: int) -> Masking:
    """Return the matrices of a layer of causal attention with random weights over random inputs."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = MultiHeadAttention(D_MODEL, 1, Full().mask_pattern((LENGTH,), causal=True))
    layer = layer.double().eval()
    x = torch.randn(1, LENGTH, D_MODEL, generator=generator, dtype=torch.float64) * 2.5
    with torch.no_grad():
        q, k, _ = layer.qkv_proj(x)[0].chunk(3, dim=-1)  # 3 x [L, E]
        logits = q @ k.mT / layer.d_head**0.5  # [L, L]
        weights = layer.weights(x)[0, 0]  # [L, L]
        cache = layer.init_cache(1, LENGTH)
        mask = layer.step_context(torch.arange(LENGTH), cache).mask  # [L, L]
    return Masking(logits.numpy(), mask.numpy(), weights.numpy())


@figure()
def mask(seed: int) -> Figure:
    """The look-ahead mask of 5 positions: logits, mask, masked logits and weights with values."""
    matrices = masking(seed)
    drawing = new_figure(11.0, 3.3, "query (row) and key (column); every query sees the keys up to "
                         "its own position")  # fmt: skip
    panels = drawing.subplots(1, 4)
    high = 1.4 * float(np.abs(matrices.logits).max())
    signed: dict[str, Any] = {"limits": (-high, high), "colours": "RdBu_r"}
    matrix(panels[0], matrices.logits, title="logits  q kᵀ / √E", **signed)
    matrix(panels[1], matrices.mask, title="+ mask", form="{:.0f}", **signed)
    matrix(panels[2], matrices.logits + matrices.mask, title="= before softmax", **signed)
    title = "after softmax: each row adds up to 1"
    matrix(panels[3], matrices.weights, title=title, limits=(0, 1.1))
    return drawing


class Seen(NamedTuple):
    """What the queries of one variant see."""

    keys: NDArray[np.float64]
    """1 where the query (row) sees the key (column), 0.5 where in a compressed key: [L, L]."""
    n_pairs: int
    """Pairs of a query and a key that it sees; a compressed key counts once."""


def visible() -> dict[str, Seen]:
    """Return what the queries of each variant see, from the mask rules."""
    length = SHAPE[0] * SHAPE[1]
    key = torch.arange(length)
    query = key.unsqueeze(1)
    patterns = {}
    for name, (variant, causal) in VARIANTS.items():
        shape = SHAPE if isinstance(variant, Local2D) else (length,)
        pattern = variant.mask_pattern(shape, causal)
        seen = pattern.visible(query, key).double()  # [L, L]
        if isinstance(pattern, CompressedPattern):
            seen = (seen + pattern.uncompressed_visible(query, key)) / 2
        patterns[name] = Seen(seen.numpy(), pattern.visible_pairs(length))
    return patterns


@figure()
def patterns() -> Figure:
    """Which keys each query sees under full, local, and compressed attention, as matrices."""
    length = SHAPE[0] * SHAPE[1]
    drawing = new_figure(9.0, 7.0, f"{length} queries (rows) and keys (columns)")
    for (name, seen), axes in zip(visible().items(), drawing.subplots(2, 3).flat, strict=True):
        axes.imshow(seen.keys, cmap="Blues", vmin=0, vmax=1.4)
        cell_grid(axes, length, length)
        axes.set_xticks(range(0, length, 6))
        axes.set_yticks(range(0, length, 6))
        axes.tick_params(which="both", length=0, labelsize=7)
        axes.set_title(f"{name}\n{seen.n_pairs} pairs", fontsize=8)
    return drawing


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


@figure()
def local_2d() -> Figure:
    """Query and memory blocks of local 2-D attention, step by step (Parmar et al. 2018, fig. 1)."""
    drawing = new_figure(
        2.2 * len(PIXELS),
        5.2,
        "red: position of the query; grey: generated before; blue: keys that the query sees\n"
        "solid: query block; dashed: memory block, the keys that some query of the block sees",
    )
    colours = ListedColormap(["white", "#d9d7d0", "#9dbbe6"])
    orders: tuple[Order, ...] = ("raster", "blocks")
    for order, panels in zip(orders, drawing.subplots(2, len(PIXELS)), strict=True):
        panels[0].set_ylabel(f"order: {order}", fontsize=9)
        for (row, column), step, axes in zip(PIXELS, steps(order), panels, strict=True):
            axes.imshow(np.where(step.visible, 2, step.before), cmap=colours, vmin=0, vmax=2)
            cell_grid(axes, SIDE, SIDE, colour="#efede8", width=0.6)
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=RED))
            blocks = (step.memory_block, step.query_block)
            for block, (style, colour) in zip(blocks, reversed(BLOCK_LINES), strict=True):
                axes.add_collection(
                    LineCollection(outline(block), linestyle=style, colors=colour, linewidth=1.6)
                )
            axes.set(xticks=[], yticks=[])
            axes.tick_params(which="both", length=0)
            axes.set_title(f"row {row}, column {column}", fontsize=8)
    return drawing
