"""Batch norm and layer norm: the numbers that share a mean and a variance."""

from __future__ import annotations

import numpy as np
import torch
from einops.layers.torch import Rearrange
from numpy.typing import NDArray
from torch import nn

from triptych.core.layers import LayerNorm
from triptych.files.drawing import BLUE, new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

SENTENCES, POSITIONS, FEATURES = 4, 5, 6
AT = (3, 0, 0)
"""Sentence, position and feature of the number that is normalised; on the visible sides."""


def layers() -> dict[str, nn.Module]:
    """Return a layer of each kind by name: [B, L, D] -> [B, L, D]."""
    batch_norm = nn.Sequential(
        Rearrange("b l d -> b d l"), nn.BatchNorm1d(FEATURES), Rearrange("b d l -> b l d")
    )
    return {"batch norm": batch_norm, "layer norm": LayerNorm().build(FEATURES)}


def read_by(layer: nn.Module, at: tuple[int, int, int] = AT) -> NDArray[np.bool_]:
    """Return which inputs the layer reads for one output, from the gradient: bool [B, L, D]."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SENTENCES, POSITIONS, FEATURES, generator=generator, dtype=torch.float64)
    x.requires_grad_()
    layer.double()(x)[at].backward()
    assert x.grad is not None
    return (x.grad != 0).numpy()


def draw(options: ExplainOptions, model: None) -> Content:
    """Return one block of numbers for each kind of layer."""
    figure = new_figure(8.6, 4.3, "coloured: the numbers whose mean and variance normalise the "
                        "dark one")  # fmt: skip
    for index, (name, layer) in enumerate(layers().items(), start=1):
        read = read_by(layer)
        # Axes of the drawing: sentences to the right, features to the back, positions downwards.
        shown = read.transpose(0, 2, 1)[:, :, ::-1]
        colours = np.full(shown.shape, "#f4f3ef", dtype=object)
        colours[shown] = "#8fb1e3"
        sentence, position, feature = AT
        colours[sentence, feature, POSITIONS - 1 - position] = BLUE
        axes = figure.add_subplot(1, 2, index, projection="3d")
        axes.voxels(np.ones(shown.shape), facecolors=colours, shade=False,
                    edgecolor="#8a8f94", linewidth=0.5)  # fmt: skip
        axes.set_box_aspect(shown.shape)
        axes.view_init(elev=24, azim=-60)
        axes.set(xticks=[], yticks=[], zticks=[])
        for label, name_of_axis in zip("xyz", ("sentences", "features", "positions"), strict=True):
            getattr(axes, f"set_{label}label")(name_of_axis, fontsize=9, labelpad=-12)
            getattr(axes, f"{label}axis").set_pane_color("white")
            getattr(axes, f"{label}axis").line.set_color("white")
        axes.set_title(name, fontsize=10)
    return {"norms.png": png(figure)}


FIGURE = Figure(files=("norms.png",), draw=draw)
