"""Real or drawn: a visitor tells held-out images from samples of a model, and sees how well."""

import math
from functools import partial
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
from numpy.typing import NDArray

from triptych.domains.pictures import render
from triptych.domains.pictures.config import read_to_score
from triptych.tools.play.parts import (
    result_image,
    run_button,
    sampling,
    stop_button,
)
from triptych.types import Progress

ROUNDS = 20
"""Pairs of a vote."""
Z = 1.96
"""Quantile of the normal distribution for an interval of 95 %."""


class Ballot(NamedTuple):
    """Pairs of a real and a drawn image, and what a visitor has said of the first ones."""

    pairs: list[NDArray[np.uint8]]
    """Both images side by side, RGB: [H', W', 3] each."""
    real_left: list[bool]
    """Whether the left one of a pair is real."""
    said_left: tuple[bool, ...] = ()
    """Whether the visitor took the left one for real, of the pairs so far."""


def begin(
    model: Any, data: str, seed: Any, temperature: Any, progress: Progress | None = None
) -> Ballot:
    """Return new pairs, of the same class where the model knows classes.

    model: an `ImageModel`. data: folder of the data, empty for that of the training. The real
    images are test images, chosen by the seed. Raises UserError for missing data and for those of
    another model.
    """
    options = sampling(seed, temperature, 1, progress)
    classes = model.full_model.n_classes
    request = model.score_request(split="test", data=data.strip() or None)
    _, images = read_to_score(model.data_settings, request, model.vocabulary, classes=classes > 0)
    drawn = model.sample(**{**options, "count": ROUNDS})
    generator = np.random.default_rng(options["seed"])
    indices = generator.permutation(len(images))
    if images.labels is not None and classes:  # in turn, as those of the samples
        labels = images.labels.numpy()
        of_class = [np.flatnonzero(labels == number % classes) for number in range(ROUNDS)]
        indices = np.array([generator.choice(one if one.size else indices) for one in of_class])
    real = images.pixels.numpy()[np.resize(indices, ROUNDS)]
    real_left = generator.random(ROUNDS) < 0.5
    both = [render.in_colour(render.to_bytes(each, images.levels)) for each in (real, drawn)]
    pairs = [
        enlarged(np.stack(pair if left else pair[::-1]), 2)
        for *pair, left in zip(*both, real_left, strict=True)
    ]
    return Ballot(pairs, real_left.tolist())


def enlarged(cells: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    """Return images [N, H, W, 3] in one, large enough for a page."""
    return render.lay_out(cells, columns).repeat(2, axis=0).repeat(2, axis=1)


def verdict(ballot: Ballot) -> str:
    """Return the result so far as a sentence: a share, its interval and what guessing would do.

    The interval is Wilson's (1927); the probability is that of as many right answers or more when
    each is a guess.
    """
    n = len(ballot.said_left)
    k = sum(a == b for a, b in zip(ballot.said_left, ballot.real_left, strict=False))  # right
    if n == 0:
        return f"Which one is real? {ROUNDS} pairs."
    centre, spread = (k + Z**2 / 2) / (n + Z**2), Z * math.sqrt(k * (n - k) / n + Z**2 / 4)
    low, high = centre - spread / (n + Z**2), centre + spread / (n + Z**2)
    chance = sum(math.comb(n, j) for j in range(k, n + 1)) / 2**n
    said = (
        f"{k} of {n} right: {k / n:.0%}, 95 % interval {max(0, low):.0%} to {min(1, high):.0%}. "
        f"Guesses are right as often with probability {chance:.2g}."
    )
    return said if n < ROUNDS else f"{said} That was the last pair."


def layout(model: Any, fields: list[Any]) -> None:
    """Add the vote to the page of a model; fields: of the seed and the temperature."""
    ballot = gr.State(None)
    gr.Markdown(
        f"{ROUNDS} pairs of a test image and an image that the model sampled with the seed and the "
        "temperature of the page. A visitor who cannot tell them apart is right half of the time."
    )
    data = gr.Textbox(
        label="Folder of the data", placeholder="that of the training", max_lines=1
    )  # fmt: skip
    picture = result_image("Pair")
    result = gr.Markdown()
    outputs = [ballot, picture, result]

    def shown(ballot: Ballot) -> tuple[Ballot, Any, str]:
        done = len(ballot.said_left)
        return ballot, ballot.pairs[done] if done < ROUNDS else None, verdict(ballot)

    def start(*values: Any) -> tuple[Ballot, Any, str]:
        return shown(begin(model, *values))

    def vote(left: bool, ballot: Ballot | None, progress: Progress) -> Any:
        if ballot is None or len(ballot.said_left) == ROUNDS:
            return ballot, None, "Press *Begin*." if ballot is None else verdict(ballot)
        return shown(ballot._replace(said_left=(*ballot.said_left, left)))

    with gr.Row():
        run_button("Begin", start, [data, *fields], outputs, primary=True)
        run_button("Left is real", partial(vote, True), [ballot], outputs)
        run_button("Right is real", partial(vote, False), [ballot], outputs)
        stop_button()
    picture.render()
