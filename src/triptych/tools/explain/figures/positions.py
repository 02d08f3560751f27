"""Sinusoidal position encodings of 50 positions with 128 features (Vaswani et al. 2017, 3.5)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.generation_order import raster
from triptych.core.positions import Sinusoidal
from triptych.files.drawing import COLOURS, new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

POSITIONS, FEATURES = 50, 128
CURVES = (0, 4, 16, 32)
"""Features whose values are drawn over the positions."""


def encodings() -> NDArray[np.float64]:
    """Return the encoding of each position, as a model adds it: [50, 128]."""
    module = Sinusoidal().build(FEATURES, raster((POSITIONS,)))
    rows: NDArray[np.float64] = module(torch.arange(POSITIONS)).double().numpy()
    return rows


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the encodings as a heat map, and some features over the positions."""
    values = encodings()
    figure = new_figure(9.0, 5.6)
    upper, lower = figure.subplots(2, 1, height_ratios=[1.9, 1])
    image = upper.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    figure.colorbar(image, ax=[upper, lower], pad=0.01, aspect=40)
    upper.set(xlabel="feature", ylabel="position")
    upper.set_title("sin (even features) and cos (odd features) of position / 10000^(2i / 128)",
                    fontsize=10)  # fmt: skip
    for feature, colour in zip(CURVES, COLOURS, strict=False):
        lower.plot(values[:, feature], color=colour, label=f"feature {feature}", linewidth=1.4)
    lower.set(xlabel="position", ylabel="value", xlim=(0, POSITIONS - 1))
    lower.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncol=4, frameon=False)
    return {"positions.png": png(figure)}


FIGURE = Figure(files=("positions.png",), draw=draw)
