"""Baselines in bits per dimension: uniform, and one histogram per sub-pixel position."""

from __future__ import annotations

import math

import pytest
import torch
from dataclass_rules import changeable_dataclasses, names_of_many_defaults, positional_options
from noisy_sources import CopiedRows
from tiny_image import tiny_image

from triptych.domains.image.metrics import histogram_bits_per_dim


def test_histogram_by_hand() -> None:
    train = torch.tensor([[0, 1], [0, 1], [0, 0]], dtype=torch.uint8).view(3, 1, 2, 1)
    held_out = torch.tensor([[0, 0], [2, 1]], dtype=torch.uint8).view(2, 1, 2, 1)
    # position 0: counts 3, 0, 0 plus one over 6; position 1: counts 1, 2, 0 plus one over 6
    by_hand = -(math.log2(4 / 6) + math.log2(2 / 6) + math.log2(1 / 6) + math.log2(3 / 6)) / 4
    assert histogram_bits_per_dim(train, held_out, 3) == pytest.approx(by_hand, abs=1e-12)


def test_histogram_that_saw_nothing_is_uniform() -> None:
    nothing = torch.zeros(0, 2, 3, 1, dtype=torch.uint8)
    held_out = torch.randint(0, 17, (5, 2, 3, 1), dtype=torch.uint8)
    assert histogram_bits_per_dim(nothing, held_out, 17) == pytest.approx(math.log2(17))


def test_a_score_has_the_histogram_of_the_training_images() -> None:
    source = CopiedRows(2, 3, levels=4, train_size=9, test_size=5)
    model, test = tiny_image((2, 3, 1), 4, source=source), source.load("test")
    model.vocabulary = test.vocabulary()
    details = model.evaluate().details
    expected = histogram_bits_per_dim(source.load("train").pixels, test.pixels, 4)
    assert details["histogram_bits_per_dim"] == expected
    assert details["uniform_bits_per_dim"] == 2
    assert details["sub_pixels"] == 5 * 2 * 3


def test_values_of_this_package_cannot_be_changed() -> None:
    assert not changeable_dataclasses("triptych.domains.image")
    assert not positional_options("triptych.domains.image")
    found = names_of_many_defaults("triptych.domains.image")
    assert found == {"count"}
