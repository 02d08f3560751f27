"""What comes out of a model: distributions over levels, samples of a token, scores of a text."""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from triptych.core.heads import MixtureOfLogisticsHead
from triptych.decoding.sampling import filter_logits
from triptych.domains.translation.metrics import score_translations
from triptych.files.drawing import BLUE, COLOURS, new_figure
from triptych.tools.explain.figure import figure
from triptych.types import Sampling

from ._drawing import UNUSED

LEVELS = 16
WEIGHTS = (0.5, 0.3, 0.2)
MEANS = (-0.45, 0.35, 1.0)
"""On the scale from -1, level 0, to 1, level 15."""
SCALES = (0.08, 0.15, 0.1)
PROBABILITIES = (0.34, 0.22, 0.14, 0.10, 0.07, 0.05, 0.04, 0.02, 0.01, 0.01)
"""Of ten tokens, as the model predicts them."""
SETTINGS = {
    "temperature 0.5": Sampling(temperature=0.5),
    "temperature 2": Sampling(temperature=2.0),
    "top-k 3": Sampling(top_k=3),
    "top-p 0.75": Sampling(top_p=0.75),
}
REFERENCE = "a man is playing the guitar on the stage"
TRANSLATION = "the man plays the guitar on the stage"
LONGEST = 4
"""Length of the longest n-grams that BLEU counts."""


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


@figure()
def logistics() -> Figure:
    """A mixture of three logistics and the mass of 16 levels (Salimans et al. 2017, eq. 2)."""
    drawing = new_figure(8.0, 4.6)
    upper, lower = drawing.subplots(2, 1)
    x = np.linspace(-0.5, LEVELS - 0.5, 600)
    value = x * 2 / (LEVELS - 1) - 1
    for index, (weight, mean, scale) in enumerate(zip(WEIGHTS, MEANS, SCALES, strict=True)):
        density = weight / (4 * scale * np.cosh((value - mean) / (2 * scale)) ** 2)
        upper.plot(x, density, color=COLOURS[index], label=f"component {index}")
    for border in np.arange(-0.5, LEVELS, 1):
        upper.axvline(border, color=UNUSED, linewidth=0.8, zorder=0)
    upper.legend()
    upper.set(ylabel="density")
    upper.set_title("three logistic densities over the bins of 16 levels", fontsize=9)
    base = np.zeros(LEVELS)
    for index, part in enumerate(masses().of_components):
        lower.bar(range(LEVELS), part, bottom=base, width=0.9, color=COLOURS[index])
        base = base + part
    lower.set(xlabel="level", ylabel="probability")
    lower.margins(y=0.1)
    for axes in (upper, lower):
        axes.set(xticks=range(LEVELS), xlim=(-0.5, LEVELS - 0.5))
    lower.set_title("mass of each bin; the first and the last reach to infinity", fontsize=9)
    return drawing


def distributions() -> dict[str, NDArray[np.float64]]:
    """Return the probabilities [V] from which each setting samples."""
    logits = torch.tensor(PROBABILITIES, dtype=torch.float64).log()
    return {
        name: filter_logits(logits, setting).softmax(-1).numpy()
        for name, setting in SETTINGS.items()
    }


@figure()
def sampling() -> Figure:
    """One distribution under temperature, top-k and top-p (Holtzman et al. 2020, section 3.1)."""
    drawing = new_figure(
        9.6, 2.6, "grey: predicted probabilities; blue: those that are sampled from"
    )
    panels = drawing.subplots(1, len(SETTINGS), sharey=True)
    tokens = np.arange(len(PROBABILITIES))
    for (name, values), axes in zip(distributions().items(), panels, strict=True):
        axes.bar(tokens, PROBABILITIES, width=0.9, color=UNUSED, edgecolor="#b9b6ae")
        axes.bar(tokens, values, width=0.5, color=BLUE)
        axes.set_title(name, fontsize=9)
        axes.set(xlabel="token", xticks=tokens)
        axes.tick_params(labelsize=7)
    panels[0].set_ylabel("probability")
    return drawing


class Matches(NamedTuple):
    """Which n-grams of a translation are counted as right."""

    right: list[list[bool]]
    """For n = 1 to 4, each n-gram in the order of the translation."""
    brevity: float
    """Brevity penalty."""
    bleu: float
    """From 0 to 100, by the function that `triptych evaluate` uses."""


def matches() -> Matches:
    """Return the n-grams of the translation, each right at most as often as in the reference."""
    translation, expected = TRANSLATION.split(), REFERENCE.split()
    right = []
    for n in range(1, LONGEST + 1):
        left = Counter(runs(expected, n))
        row = []
        for gram in runs(translation, n):
            row.append(left[gram] > 0)
            left[gram] -= 1
        right.append(row)
    scores, _ = score_translations([TRANSLATION], [REFERENCE], tokenizer="13a")
    brevity = min(1.0, math.exp(1 - len(expected) / len(translation)))
    return Matches(right, brevity, scores["bleu"])


def runs(words: list[str], n: int) -> list[tuple[str, ...]]:
    """Return all runs of n words."""
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


@figure()
def ngrams() -> Figure:
    """The n-grams of a translation that its reference has too, and the BLEU that they give."""
    scores, words = matches(), TRANSLATION.split()
    title = f"reference: {REFERENCE}\nbrevity penalty {scores.brevity:.3f}, BLEU {scores.bleu:.1f}"
    drawing = new_figure(9.0, 3.4, title)
    axes = drawing.subplots()
    for n, row in enumerate(scores.right, start=1):
        for first, right in enumerate(row):
            # Each n-gram is a bar over its words; neighbours overlap, so they are stacked.
            level = -n - (first % n) * 0.8 / n
            axes.barh(level, n - 0.15, left=first + 0.075, height=0.6 / n, linewidth=0.5,
                      color=BLUE if right else UNUSED, edgecolor="#b9b6ae")  # fmt: skip
        middle, label = -n - 0.4 * (n - 1) / n, f"$p_{n}$ = {sum(row)}/{len(row)}"
        axes.text(-0.2, middle, f"n = {n}", ha="right", va="center", fontsize=9)
        axes.text(len(words) + 0.2, middle, label, va="center", fontsize=9)
    for place, word in enumerate(words):
        axes.text(place + 0.5, -0.35, word, ha="center", va="center", fontsize=10)
    axes.set(xlim=(-0.9, len(words) + 1.4), ylim=(-LONGEST - 0.95, 0))
    axes.set_axis_off()
    return drawing
