"""The n-grams of a translation that its reference has too, and the BLEU that they give."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from triptych.domains.translation.metrics import score_translations
from triptych.files.drawing import BLUE, new_figure, png
from triptych.tools.explain.drawing import UNUSED
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

REFERENCE = "a man is playing the guitar on the stage"
TRANSLATION = "the man plays the guitar on the stage"
LONGEST = 4
"""Length of the longest n-grams that BLEU counts."""


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
        left = Counter(ngrams(expected, n))
        row = []
        for gram in ngrams(translation, n):
            row.append(left[gram] > 0)
            left[gram] -= 1
        right.append(row)
    scores = score_translations([TRANSLATION], [REFERENCE], tokenizer="13a")
    brevity = min(1.0, math.exp(1 - len(expected) / len(translation)))
    return Matches(right, brevity, scores.metrics["bleu"])


def ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    """Return all runs of n words."""
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def draw(options: ExplainOptions, model: None) -> Content:
    """Return a row of n-grams for each n, blue where the reference has them."""
    scores, words = matches(), TRANSLATION.split()
    title = f"reference: {REFERENCE}\nbrevity penalty {scores.brevity:.3f}, BLEU {scores.bleu:.1f}"
    figure = new_figure(9.0, 3.4, title)
    axes = figure.subplots()
    for n, row in enumerate(scores.right, start=1):
        for first, right in enumerate(row):
            # Each n-gram is a bar over its words; neighbours overlap, so they are stacked.
            level = -n - (first % n) * 0.8 / n
            bars = axes.barh(level, n - 0.15, left=first + 0.075, height=0.6 / n)
            bars[0].set(color=BLUE if right else UNUSED, edgecolor="#b9b6ae", linewidth=0.5)
        middle, label = -n - 0.4 * (n - 1) / n, f"$p_{n}$ = {sum(row)}/{len(row)}"
        axes.text(-0.2, middle, f"n = {n}", ha="right", va="center", fontsize=9)
        axes.text(len(words) + 0.2, middle, label, va="center", fontsize=9)
    for place, word in enumerate(words):
        axes.text(place + 0.5, -0.35, word, ha="center", va="center", fontsize=10)
    axes.set(xlim=(-0.9, len(words) + 1.4), ylim=(-LONGEST - 0.95, 0))
    axes.set_axis_off()
    return {"ngrams.png": png(figure)}


FIGURE = Figure(files=("ngrams.png",), draw=draw)
