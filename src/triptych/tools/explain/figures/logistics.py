"""A mixture of three logistics and the mass of each of 16 levels (Salimans et al. 2017, eq. 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.heads import MixtureOfLogisticsHead
from triptych.files.drawing import COLOURS, new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

LEVELS = 16
WEIGHTS = (0.5, 0.3, 0.2)
MEANS = (-0.45, 0.35, 1.0)
"""On the scale from -1, level 0, to 1, level 15."""
SCALES = (0.08, 0.15, 0.1)


class Masses(NamedTuple):
    """Probability of each level."""

    levels: NDArray[np.float64]
    """Under the mixture: [16]."""
    of_components: NDArray[np.float64]
    """Of each component, times its weight: [3, 16]."""


def masses() -> Masses:
    """Return the probabilities that the head computes from parameters of the mixture."""
    head = MixtureOfLogisticsHead(1, LEVELS, channels=1, components=len(WEIGHTS))
    weights, means, scales = (
        torch.tensor(row, dtype=torch.float64) for row in (WEIGHTS, MEANS, SCALES)
    )
    targets = torch.arange(LEVELS).unsqueeze(-1)  # [16, 1]

    def of_weights(log_weights: torch.Tensor) -> NDArray[np.float64]:
        parameters = torch.cat([log_weights, means, scales.log()]).expand(LEVELS, -1)  # [16, Z]
        probabilities: NDArray[np.float64] = (-head.nll(parameters, targets)).exp().numpy()
        return probabilities

    alone = [
        weight * of_weights(torch.eye(len(WEIGHTS), dtype=torch.float64)[index].log())
        for index, weight in enumerate(WEIGHTS)
    ]
    return Masses(of_weights(weights.log()), np.stack(alone))


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the densities above, and the masses of the levels below."""
    figure = new_figure(8.0, 4.6)
    upper, lower = figure.subplots(2, 1)
    x = np.linspace(-0.5, LEVELS - 0.5, 600)
    value = x * 2 / (LEVELS - 1) - 1
    for index, (weight, mean, scale) in enumerate(zip(WEIGHTS, MEANS, SCALES, strict=True)):
        density = weight / (4 * scale * np.cosh((value - mean) / (2 * scale)) ** 2)
        upper.plot(x, density, color=COLOURS[index], label=f"component {index}")
    for border in np.arange(-0.5, LEVELS, 1):
        upper.axvline(border, color="#e4e3df", linewidth=0.8, zorder=0)
    upper.legend(fontsize=8, frameon=False)
    upper.set(ylabel="density", xlim=(-0.5, LEVELS - 0.5))
    upper.set_title("three logistic densities over the bins of 16 levels", fontsize=9)
    densities, base = masses(), np.zeros(LEVELS)
    for index, part in enumerate(densities.of_components):
        lower.bar(range(LEVELS), part, bottom=base, width=0.9, color=COLOURS[index])
        base = base + part
    lower.set(xlabel="level", ylabel="probability", xlim=(-0.5, LEVELS - 0.5))
    lower.margins(y=0.1)
    for axes in (upper, lower):
        axes.set_xticks(range(LEVELS))
    lower.set_title("mass of each bin; the first and the last reach to infinity", fontsize=9)
    return {"logistics.png": png(figure)}


FIGURE = Figure(files=("logistics.png",), draw=draw)
