"""Scores of completion and super-resolution, against sums over all images of tiny models."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from tiny_image import tiny_image

from triptych.domains.image.domain import ImageEvaluateOptions
from triptych.domains.image.inference import ImageModel
from triptych.domains.image.metrics import completion_scores, upscaling_scores
from triptych.domains.image.model import (
    average_down,
)
from triptych.domains.pictures.data import ImageDataset
from triptych.errors import UserError

LEVELS = 3


def model_of(shape: tuple[int, int, int], factor: int | None = None) -> ImageModel:
    model = tiny_image(shape, LEVELS, n_layers=1, factor=factor, sharp=True)
    model.full_model.double()
    return model


def test_the_bits_of_a_half_are_those_of_the_enumerated_conditional() -> None:
    trained, filled = model_of((2, 2, 1)), torch.tensor([[False, False], [True, True]])
    every = torch.tensor(list(product(range(LEVELS), repeat=4)), dtype=torch.uint8)
    with torch.no_grad():
        p = (-trained.full_model.eval().nll(every.view(-1, 2, 2, 1)).sum(1)).exp().view(9, 9)
    upper, lower = 5, 7  # indices of the rows of one image
    image = every.view(9, 9, 2, 2, 1)[upper, lower].unsqueeze(0)
    images = ImageDataset(image.repeat(33, 1, 1, 1), None, LEVELS)  # two batches
    seen: list[tuple[int, int]] = []
    found = completion_scores(trained, images, filled, progress=lambda *done: seen.append(done))
    found, conditional = found["completion"], p[upper, lower] / p[upper].sum()
    assert seen == [(1, 2), (2, 2)]
    assert found["filled_bits_per_dim"] == pytest.approx(-math.log2(conditional) / 2)
    assert found["given_bits_per_dim"] == pytest.approx(-math.log2(p[upper].sum()) / 2)
    with pytest.raises(UserError, match="--mask bottom"):
        trained.check_evaluation(ImageEvaluateOptions(checkpoint="a.ckpt", mask="top"))


def test_psnr_and_consistency_by_hand() -> None:
    trained = model_of((4, 4, 1), factor=2)
    pixels = torch.randint(LEVELS, (5, 4, 4, 1), dtype=torch.uint8)
    found = upscaling_scores(trained, ImageDataset(pixels, None, LEVELS), seed=3)["upscaling"]
    small = average_down(pixels, 2).numpy()
    made = trained.upscale(small, seed=3)[:, 0].astype(float)
    error = ((made - pixels.numpy()) ** 2).mean()
    assert found["samples"]["psnr"] == pytest.approx(10 * math.log10((LEVELS - 1) ** 2 / error))
    again = np.floor(made.reshape(5, 2, 2, 2, 2, 1).mean((2, 4)) + 0.5)
    assert found["samples"]["consistent_share"] == pytest.approx((again == small).mean())
    assert found["samples"]["consistency_error"] == pytest.approx(np.abs(again - small).mean())
    assert found["nearest"]["consistent_share"] == 1
    assert found["nearest"]["consistency_error"] == 0
