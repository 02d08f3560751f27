"""The input of BERT: tokens, segments and positions, and which tokens four draws of masks hide."""

from __future__ import annotations

from typing import NamedTuple

import torch

from triptych.domains.language.labelled_examples import LabelledBatch, join_texts
from triptych.domains.language.masking import MaskRates
from triptych.domains.language.vocabulary import MASK, SPECIALS
from triptych.files.drawing import BLUE, GREEN, GREY, RED, new_figure, png
from triptych.text.word_piece import UNKNOWN
from triptych.tools.explain.drawing import UNUSED
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

TEXTS = ("my dog is cute and small", "he likes playing in the park")
OTHER_WORDS = ("green", "house", "two", "sings", "of", "never")
"""Further words of the vocabulary, which a random token may be."""
N_DRAWS = 4
FIRST_SEED = 8
"""Seed of the masks for the option's 0: its draws have tokens of all three kinds."""


class Reading(NamedTuple):
    """Rows of one input, with a word for each token."""

    tokens: list[str]
    segments: list[str]
    read: list[list[str]]
    """What the model reads in each draw."""
    predicted: list[list[bool]]
    """Which of these tokens are part of the loss."""


def reading(seed: int) -> Reading:
    """Return the input of the two texts, masked at the published rates."""
    words = [*TEXTS[0].split(), *TEXTS[1].split(), *OTHER_WORDS]
    names = [*SPECIALS, UNKNOWN, *dict.fromkeys(words)]
    texts = [[names.index(word) for word in text.split()] for text in TEXTS]
    row = join_texts(texts, 100, with_cls=True)  # [L]
    generator = torch.Generator().manual_seed(FIRST_SEED + seed)
    tokens = torch.tensor(row).expand(N_DRAWS, -1)  # [draws, L]
    read, predicted = MaskRates().apply(tokens, range(len(SPECIALS) + 1, len(names)), generator)
    batch = LabelledBatch(tokens[:1].unsqueeze(1), torch.zeros(1, dtype=torch.int64))  # [1, 1, L]
    return Reading(
        [names[token] for token in row],
        ["AB"[segment] for segment in batch.segments.flatten().tolist()],
        [[names[token] for token in of_draw] for of_draw in read.tolist()],
        predicted.tolist(),
    )


def draw(options: ExplainOptions, model: None) -> Content:
    """Return a table with a column for each token."""
    inputs = reading(options.seed)
    figure = new_figure(
        11.0, 3.4, "blue: read as [MASK]; red: as a random token; green: as it is, and predicted"
    )
    axes = figure.subplots()
    places = [str(place) for place in range(len(inputs.tokens))]
    top = [("token", inputs.tokens), ("segment", inputs.segments), ("position", places)]
    rows = top + [(f"draw {n}", words) for n, words in enumerate(inputs.read, start=1)]
    for line, (name, words) in enumerate(rows):
        y = -line - (0.5 if line >= len(top) else 0.0)
        axes.text(-0.7, y, name, ha="right", va="center", fontsize=9, color=GREY)
        for place, word in enumerate(words):
            ground, text = "white", "black"
            if line >= len(top) and inputs.predicted[line - len(top)][place]:
                same = word == inputs.tokens[place]
                ground = BLUE if word == SPECIALS[MASK] else GREEN if same else RED
                text = "white"
            box = {"facecolor": ground, "edgecolor": UNUSED, "boxstyle": "square,pad=0.35"}
            axes.text(place, y, word, ha="center", va="center", fontsize=8, color=text, bbox=box)
    axes.set(xlim=(-2.2, len(inputs.tokens) - 0.4), ylim=(-len(rows) - 0.1, 0.6))
    axes.set_axis_off()
    return {"bert-input.png": png(figure)}


FIGURE = Figure(files=("bert-input.png",), draw=draw, uses=("seed",))
