"""Learning rate over the updates: warm-up, then the inverse square root of the step."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.files.drawing import COLOURS, new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure
from triptych.training.engine.optim import Noam

CURVES = ((512, 4000), (512, 8000), (256, 4000))
"""Widths and warm-up steps of the curves; the first is the published one."""
LAST_STEP = 20_000
MARKED = {1: (3300, 0.3e-4), 4000: (6300, 8.9e-4), 16_000: (15_000, 4.1e-4)}
"""Steps of the first curve whose learning rates are printed, and where."""


def learning_rates(d_model: int, warmup: int, steps: Sequence[int]) -> list[float]:
    """Return the learning rates of Vaswani et al. 2017, section 5.3, equation 3, at some steps."""
    noam = Noam(warmup_steps=warmup)
    return [noam.rate(1.0, step, d_model=d_model) for step in steps]


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the curves, with the values of some steps."""
    figure = new_figure(7.6, 4.2)
    axes = figure.subplots()
    steps = range(1, LAST_STEP + 1, 20)
    for (d_model, warmup), colour in zip(CURVES, COLOURS, strict=False):
        label = f"d_model {d_model}, warm-up {warmup:,}"
        axes.plot(steps, learning_rates(d_model, warmup, steps), color=colour, label=label)
    for step, place in MARKED.items():
        (rate,) = learning_rates(*CURVES[0], [step])
        axes.plot([step], [rate], "o", color=COLOURS[0], markersize=4, clip_on=False, zorder=5)
        axes.annotate(f"step {step:,}: {rate:.2e}", (step, rate), xytext=place, fontsize=8,
                      arrowprops={"arrowstyle": "-", "color": "#9aa0a6"})  # fmt: skip
    axes.set(xlabel="update", ylabel="learning rate", xlim=(0, LAST_STEP), ylim=(0, None))
    axes.set_title("d_model^−0.5 · min(step^−0.5, step · warm-up^−1.5)", fontsize=10)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-4, -4))
    axes.legend(fontsize=8, frameon=False)
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    return {"schedule.png": png(figure)}


FIGURE = Figure(files=("schedule.png",), draw=draw)
