"""What the page of an image model shows."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tiny_image import tiny_image

from triptych.domains.image.domain import HALVES
from triptych.domains.image.inference import ImageModel
from triptych.domains.pictures import render
from triptych.errors import UserError

page = pytest.importorskip(
    "triptych.tools.play.image", reason="gradio is not installed (extra play)"
)

HEIGHT, WIDTH, LEVELS = 4, 6, 5
CELL = 2 * (96 // WIDTH)
LINE = 2 * render.GRID_LINE


def model_of(channels: int = 1, levels: int = LEVELS) -> ImageModel:
    shape = (HEIGHT, WIDTH, channels)
    return tiny_image(shape, levels, n_layers=1, n_classes=3)


def png(pixels: NDArray[np.uint8]) -> str:
    """8-bit [H, W, C] as the browser sends a canvas: with an alpha channel."""
    content = io.BytesIO()
    colour = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    alpha = np.full((*pixels.shape[:2], 1), 255, dtype=np.uint8)
    Image.fromarray(np.concatenate([colour, alpha], axis=2)).save(content, format="PNG")
    return page.ADDRESS + base64.b64encode(content.getvalue()).decode()


def cells(grid: NDArray[np.uint8], count: int, columns: int) -> NDArray[np.uint8]:
    """The images of a grid in their own size: [count, H, W, 3]."""
    found = []
    for index in range(count):
        top = LINE + index // columns * (HEIGHT * CELL + LINE)
        left = LINE + index % columns * (WIDTH * CELL + LINE)
        image = grid[top : top + HEIGHT * CELL : CELL, left : left + WIDTH * CELL : CELL]
        found.append(image)
    return np.stack(found)


def drawn(channels: int = 1, levels: int = LEVELS) -> NDArray[np.uint8]:
    values = np.random.default_rng(1).integers(0, levels, (HEIGHT, WIDTH, channels))
    return values.astype(np.uint8)


@pytest.mark.parametrize("part", HALVES)
def test_the_given_half_comes_back_and_the_other_is_filled(part: str) -> None:
    model, image = model_of(3), drawn(3)
    scaled = render.to_bytes(image, LEVELS)
    grid = page.complete(model, png(scaled), part, 1, page.passes_for(model, part), 0, 1.0, 4)
    shown = cells(grid, 5, page.MAX_COLUMNS)
    half = {"top": np.s_[:, :2], "bottom": np.s_[:, 2:], "left": np.s_[:, :, :3]}
    filled = np.zeros(shown.shape[:3], dtype=bool)
    filled[half.get(part, np.s_[:, :, 3:])] = True
    originals = np.broadcast_to(scaled, shown.shape)
    assert (shown[~filled] == originals[~filled]).all()
    assert (shown[0][filled[0]] == render.HIDDEN).all()
    assert len({one.tobytes() for one in shown[1:]}) == 4


def test_passes_are_for_pixels_that_come_later() -> None:
    model = model_of()
    assert {part: page.passes_for(model, part) for part in HALVES} == {
        "top": 1, "bottom": 0, "left": 1, "right": 1,
    }  # fmt: skip


def test_samples_are_those_of_the_class_and_seed() -> None:
    model = model_of()
    shown = cells(page.sample(model, 2, 5, 0.8, 3), 3, 2)
    expected = model.sample(3, label=2, seed=5, temperature=0.8)
    assert (shown == render.in_colour(render.to_bytes(expected, LEVELS))).all()


@pytest.mark.parametrize("levels", [5, 256, 16])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_example_is_a_drawing_of_the_sampled_levels(channels: int, levels: int) -> None:
    model = model_of(channels, levels)
    address = page.example(model, 0, 7, 1.0)
    assert (page.read_drawing(model, address) == model.sample(1, label=0, seed=7)[0]).all()


def test_a_drawing_of_another_size_is_refused_in_a_sentence() -> None:
    other = png(np.zeros((5, 5, 1), dtype=np.uint8))
    with pytest.raises(UserError, match=r"5 wide and 5 high .* load the page again"):
        page.complete(model_of(), other, "bottom", 0, 0, 0, 1.0, 1)
