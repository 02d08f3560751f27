"""Which keys each query sees under full, local, and compressed attention, as matrices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.compressed import Compressed, CompressedPattern
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.relative import Relative
from triptych.files.drawing import new_figure, png
from triptych.tools.explain.drawing import cell_grid
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

SHAPE = (4, 6)
LENGTH = SHAPE[0] * SHAPE[1]
VARIANTS: dict[str, tuple[AttentionConfig, bool]] = {
    "full, of an encoder": (Full(), False),
    "full, causal": (Full(), True),
    "window of 6 positions": (Relative(window=6), True),
    "local 1-D, block 6, memory 6": (Local1D(block=6, memory=6), True),
    "local 2-D, 4x6 pixels in raster order,\nblock 2x3, halo 1": (Local2D(2, 3, 1, 1), True),
    "compressed, stride 3\n(light: part of a compressed key)": (Compressed(3), True),
}
"""Name -> variant, and whether it is causal."""


class Seen(NamedTuple):
    """What the queries of one variant see."""

    keys: NDArray[np.float64]
    """1 where the query (row) sees the key (column), 0.5 where in a compressed key: [L, L]."""
    n_pairs: int
    """Pairs of a query and a key that it sees; a compressed key counts once."""


def visible() -> dict[str, Seen]:
    """Return what the queries of each variant see, from the mask rules."""
    position = torch.arange(LENGTH)
    query, key = position.unsqueeze(1), position
    patterns = {}
    for name, (variant, causal) in VARIANTS.items():
        shape = SHAPE if isinstance(variant, Local2D) else (LENGTH,)
        pattern = variant.mask_pattern(shape, causal)
        seen = pattern.visible(query, key).double()  # [L, L]
        if isinstance(pattern, CompressedPattern):
            seen = (seen + pattern.uncompressed_visible(query, key)) / 2
        patterns[name] = Seen(seen.numpy(), pattern.visible_pairs(LENGTH))
    return patterns


def draw(options: ExplainOptions, model: None) -> Content:
    """Return one panel per variant."""
    figure = new_figure(9.0, 7.0, f"{LENGTH} queries (rows) and keys (columns)")
    panels = figure.subplots(2, 3).flat
    for (name, seen), axes in zip(visible().items(), panels, strict=True):
        axes.imshow(seen.keys, cmap="Blues", vmin=0, vmax=1.4)
        cell_grid(axes, LENGTH, LENGTH)
        axes.set_xticks(range(0, LENGTH, 6))
        axes.set_yticks(range(0, LENGTH, 6))
        axes.tick_params(which="both", length=0, labelsize=7)
        axes.set_title(f"{name}\n{seen.n_pairs} pairs", fontsize=8)
    return {"patterns.png": png(figure)}


FIGURE = Figure(files=("patterns.png",), draw=draw)
