"""The law of a noisy copy against counting it out, and draws that stay as they are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dataclass_rules import changeable_dataclasses, positional_options
from noisy_sources import CopiedMotifs, CopiedRows, NoisyCopy, uniform_draws

from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer


def test_every_outcome_of_a_copy_has_its_probability() -> None:
    # A thousand numbers spread evenly over 0 to 1 count the law out exactly.
    spread = (np.arange(1000) + 0.5) / 1000
    for value in range(4):
        found = NoisyCopy(4, 0.3).apply(np.full(1000, value), spread)
        expected = [100] * 4
        expected[value] = 700
        assert np.bincount(found, minlength=4).tolist() == expected


def test_entropy_is_that_of_the_probabilities() -> None:
    law = NoisyCopy(4, 0.3)
    probabilities = [0.7, 0.1, 0.1, 0.1]
    assert law.entropy() == pytest.approx(-sum(p * math.log(p) for p in probabilities))


def test_a_law_in_which_nothing_can_change_is_refused() -> None:
    for n_values, change, says in ((1, 0.5, "at least 2"), (3, 0.0, "above 0"), (3, 1.0, "below")):
        with pytest.raises(ValueError, match=says):
            NoisyCopy(n_values, change)


def test_draws_are_for_ever_and_every_split_has_its_own() -> None:
    drawn = uniform_draws(0, "train", (3, 2))
    assert drawn.ravel()[:2] == pytest.approx([0.991944, 0.514403], abs=1e-6)
    assert np.array_equal(uniform_draws(0, "train", (5, 2))[:3], drawn)
    assert not np.isin(uniform_draws(0, "test", (3, 2)), drawn).any()
    assert not np.isin(uniform_draws(1, "train", (3, 2)), drawn).any()
    assert 0 <= drawn.min() <= drawn.max() < 1


def rows(source: CopiedRows, split: str) -> list[bytes]:
    return [bytes(image.flatten().numpy()) for image in source.load(split).pixels]


def motifs(source: CopiedMotifs, split: str) -> list[bytes]:
    return [piece.content.tobytes() for piece in source.load(split, ChoraleTokenizer())]


@pytest.mark.parametrize(
    ("source", "items"),
    [
        (CopiedRows(), rows),
        (CopiedMotifs(), motifs),
    ],
    ids=lambda value: type(value).__name__,
)
def test_splits_are_the_same_every_time_and_differ(source: Any, items: Any) -> None:
    sizes = {"train_size": 300, "validation_size": 200, "test_size": 200}
    source = replace(source, **sizes)
    found = {split: items(source, split) for split in ("train", "validation", "test")}
    assert [len(set(items)) for items in found.values()] == [300, 200, 200]
    assert len(set().union(*found.values())) == 700
    more = replace(source, train_size=500)
    assert items(more, "train")[:300] == found["train"]
    assert items(more, "test") == found["test"]
    assert items(replace(source, seed=1), "test") != found["test"]


def test_values_of_this_package_cannot_be_changed() -> None:
    assert not changeable_dataclasses("triptych.domains")
    assert not positional_options("triptych.domains")
