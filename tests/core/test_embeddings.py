"""The vectors that values start from."""

from __future__ import annotations

import math

import pytest
import torch

from triptych.core.embeddings import (
    LEVEL_LENGTH_SCALE,
    ChannelEmbedding,
    PixelEmbedding,
    level_table,
)

LEVELS, D = 256, 8192


@pytest.fixture(scope="module")
def table() -> torch.Tensor:
    """Vectors of two channels, wide enough for their products to be near what is expected."""
    torch.manual_seed(0)
    return level_table(LEVELS, 2, D).weight.detach().unflatten(0, (2, LEVELS))  # [2, levels, D]


@pytest.mark.parametrize("apart", [0, 1, 16, 64, 255])
def test_levels_are_alike_as_a_gaussian_of_their_distance(table: torch.Tensor, apart: int) -> None:
    products = (table[0, : LEVELS - apart] * table[0, apart:]).sum(-1)  # [levels - apart]
    expected = math.exp(-0.5 * (apart / (LEVELS - 1) / LEVEL_LENGTH_SCALE) ** 2)
    assert products.sub(expected).abs().max() < 0.06


def test_channels_start_with_vectors_of_their_own(table: torch.Tensor) -> None:
    assert (table[0] * table[1]).sum(-1).abs().max() < 0.06


def test_numbers_have_the_spread_of_any_embedding(table: torch.Tensor) -> None:
    assert table.mean().abs() < 0.02 / math.sqrt(D)
    assert table.std().item() == pytest.approx(D**-0.5, rel=0.02)


def test_embeddings_of_pictures_start_from_it() -> None:
    """Levels side by side stay alike after what each embedding adds up and multiplies."""
    torch.manual_seed(0)
    by_channel = ChannelEmbedding(LEVELS, torch.tensor([0, 1, 2]), 64)
    by_pixel = PixelEmbedding(LEVELS, 3, 64)
    index = torch.arange(3)
    near, far = torch.tensor([[100, 101, 102]]), torch.tensor([[250, 0, 220]])
    start = torch.tensor([[101, 102, 101]])
    for values in (near, far):
        assert by_channel(values, index).square().mean().item() == pytest.approx(1.0, abs=0.3)
    assert distance(by_channel(start, index), by_channel(near, index)) < 0.01
    assert distance(by_channel(start, index), by_channel(far, index)) > 1.0
    pixels = [x.unsqueeze(0) for x in (start, near, far)]  # [1, 1, 3], a whole pixel
    start_pixel, near_pixel, far_pixel = (by_pixel(x, index[:1]) for x in pixels)
    assert distance(start_pixel, near_pixel) < 0.01
    assert distance(start_pixel, far_pixel) > 1.0


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Mean square of the difference."""
    return (a - b).square().mean().item()
