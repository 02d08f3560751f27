"""Real or drawn: the pairs are real and drawn images of one class, and the result is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_image import tiny_image

from triptych.domains.image.inference import ImageModel
from triptych.domains.pictures import render
from triptych.domains.pictures.config import DataConfig
from triptych.domains.pictures.data import ImageDataset
from triptych.domains.pictures.sources import ImageSource
from triptych.errors import UserError

vote = pytest.importorskip("triptych.tools.play.vote", reason="gradio is not installed")
LEVELS = 5


class Known(ImageSource):
    """Test images whose first pixel is their class and whose others are the highest level."""

    def load(self, split: str) -> ImageDataset:
        assert split == "test"
        pixels = torch.full((9, 4, 6, 1), LEVELS - 1, dtype=torch.uint8)
        labels = torch.arange(9) % 3
        pixels[:, 0, 0, 0] = labels
        return ImageDataset(pixels, labels, LEVELS, ["a", "b", "c"])


@pytest.fixture
def model() -> ImageModel:
    model = tiny_image((4, 6, 1), LEVELS, n_layers=1, n_classes=3)
    model.vocabulary = Known().load("test").vocabulary()
    model.data_settings = replace(DataConfig(), source=Known())
    return model


def test_pairs_are_a_real_and_a_drawn_image_of_a_class(model: ImageModel) -> None:
    ballot = vote.begin(model, "", 3, 1.0)
    drawn = render.in_colour(render.to_bytes(model.sample(vote.ROUNDS, seed=3), LEVELS))
    assert len(ballot.pairs) == len(ballot.real_left) == vote.ROUNDS
    assert {True, False} == set(ballot.real_left)
    for number, (pair, left) in enumerate(zip(ballot.pairs, ballot.real_left, strict=True)):
        pixels = np.full((4, 6, 1), LEVELS - 1, dtype=np.uint8)
        pixels[0, 0] = number % 3
        real = render.in_colour(render.to_bytes(pixels[None], LEVELS))[0]
        both = [real, drawn[number]] if left else [drawn[number], real]
        expected = render.lay_out(np.stack(both), 2).repeat(2, 0).repeat(2, 1)
        assert np.array_equal(pair, expected)
    again = vote.begin(model, "", 3, 1.0)
    assert again.real_left == ballot.real_left


def test_the_result_is_a_share_with_its_interval_and_the_chance_of_guesses() -> None:
    ballot = vote.Ballot([], [True] * 15 + [False] * 5, (True,) * 18)
    # Wilson's interval of 15 of 18 by hand, and the tail of Binomial(18, 1/2): 988 / 2^18.
    says = "15 of 18 right: 83%, 95 % interval 61% to 94%."
    assert vote.verdict(ballot).startswith(says)
    assert "probability 0.0038" in vote.verdict(ballot)
    everything = vote.Ballot([], [True] * vote.ROUNDS, (True,) * vote.ROUNDS)
    assert "to 100%" in vote.verdict(everything)
    assert "last pair" in vote.verdict(everything)


def test_missing_data_are_named(model: ImageModel) -> None:
    with pytest.raises(UserError, match="reads no folder"):
        vote.begin(model, "nowhere", 0, 1.0)
