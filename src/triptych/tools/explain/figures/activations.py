"""ReLU, GELU and Swish, the activations of feed-forward layers, and their derivatives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.layers import GELU, FeedForward, FeedForwardConfig, ReLU, SwiGLU
from triptych.files.drawing import COLOURS, new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

KINDS: dict[str, FeedForwardConfig] = {
    "ReLU": ReLU(d_ff=1),
    "GELU": GELU(d_ff=1),
    "Swish": SwiGLU(d_ff=1),
}
"""Layers whose activations are drawn, by the names of the activations."""
LOWEST, HIGHEST, N_POINTS = -4.0, 4.0, 401


class Curves(NamedTuple):
    """Values at the inputs `z`: [n] each."""

    z: NDArray[np.float64]
    values: dict[str, NDArray[np.float64]]
    slopes: dict[str, NDArray[np.float64]]


def curves() -> Curves:
    """Return the activations that the layers apply, and their gradients."""
    values, slopes = {}, {}
    z = torch.linspace(LOWEST, HIGHEST, N_POINTS, dtype=torch.float64)  # [n]
    for name, kind in KINDS.items():
        layer = kind.build(1)
        assert isinstance(layer, FeedForward)
        x = z.clone().requires_grad_()
        y = layer.activation(x)  # [n]
        (slope,) = torch.autograd.grad(y.sum(), x)
        values[name], slopes[name] = y.detach().numpy(), slope.numpy()
    return Curves(z.numpy(), values, slopes)


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the activations on the left and their derivatives on the right."""
    figure = new_figure(8.4, 3.2)
    drawn_curves = curves()
    panels = figure.subplots(1, 2)
    drawn = ((drawn_curves.values, "activation"), (drawn_curves.slopes, "derivative"))
    for axes, (lines, title) in zip(panels, drawn, strict=True):
        for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
            axes.plot(drawn_curves.z, line, color=colour, label=name)
        axes.set(xlabel="z", xlim=(LOWEST, HIGHEST))
        axes.set_title(title, fontsize=10)
        axes.grid(color="#eeeeee")
        axes.set_axisbelow(True)
    panels[0].legend(fontsize=8, frameon=False)
    return {"activations.png": png(figure)}


FIGURE = Figure(files=("activations.png",), draw=draw)
