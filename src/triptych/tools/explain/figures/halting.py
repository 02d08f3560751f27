"""Adaptive computation time: steps until the halting probabilities add up to the threshold."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triptych.core.universal import AdaptiveDepth, steps_of
from triptych.files.drawing import COLOURS, GREY, new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

THRESHOLD = 0.9
PROBABILITIES = (
    (0.95, 0.5, 0.5, 0.5),
    (0.6, 0.2, 0.5, 0.5),
    (0.3, 0.3, 0.2, 0.6),
    (0.1, 0.1, 0.1, 0.1),
)
"""Halting probability of each step, by position."""


class Halted(NamedTuple):
    """Result of the halting rule."""

    weights: Tensor
    """Halting weights [positions, steps]."""
    ponder: Tensor
    """Ponder cost N + R of each position."""


def halted() -> Halted:
    """Return what the halting rule makes of the probabilities."""
    probabilities = torch.tensor(PROBABILITIES, dtype=torch.float64)  # [P, T]
    n_positions, n_steps = probabilities.shape
    depth = AdaptiveDepth(1, THRESHOLD).double()
    states = probabilities.logit().T.reshape(n_steps, 1, n_positions, 1)
    with torch.no_grad():  # with this unit the state is the logit of the probability
        depth.unit.weight.fill_(1.0)
        depth.unit.bias.zero_()
        result = depth(torch.zeros_like(states[0]), lambda t, x: states[t], n_steps)
    assert result.weights is not None
    assert result.ponder is not None
    return Halted(result.weights[0], result.ponder[0])


def draw(options: ExplainOptions, model: None) -> Content:
    """Return a bar of weights for each position, with the probabilities written into it."""
    passes = halted()
    steps = steps_of(passes.weights).tolist()
    figure = new_figure(8.4, 3.0, "a bar: weights of the steps of one position, which add up to 1")
    axes = figure.subplots()
    for position, weights in enumerate(passes.weights.tolist()):
        left = 0.0
        for step, weight in enumerate(weights[: steps[position]]):
            p = PROBABILITIES[position][step]
            last = step == steps[position] - 1
            named = f"step {step + 1}" if position == len(PROBABILITIES) - 1 else None
            text = f"R = {weight:.2g}" if last else f"p = {p:.2g}"
            axes.barh(position, weight, left=left, height=0.7, color=COLOURS[step],
                      edgecolor="white", label=named)  # fmt: skip
            axes.text(left + weight / 2, position, text, ha="center", va="center", fontsize=8,
                      color="white")  # fmt: skip
            left += weight
        axes.text(1.02, position, f"N = {steps[position]}, ponder cost "
                  f"{float(passes.ponder[position]):.2g}", va="center", fontsize=8)  # fmt: skip
    axes.axvline(THRESHOLD, color=GREY, linestyle="--", linewidth=1)
    axes.set(xlabel="sum of the weights", ylabel="position", xlim=(0, 1))
    axes.set_yticks(range(len(PROBABILITIES)), [str(n + 1) for n in range(len(PROBABILITIES))])
    axes.set_xticks([0, 0.5, THRESHOLD, 1], ["0", "0.5", f"threshold {THRESHOLD}", "1"], fontsize=8)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return {"halting.png": png(figure)}


FIGURE = Figure(files=("halting.png",), draw=draw)
