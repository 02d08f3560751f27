"""PNG grids: white stays white, nothing is stretched, files are whole or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dataclass_rules import changeable_dataclasses, names_of_many_defaults, positional_options
from PIL import Image

from triptych.domains.pictures import render


def test_the_predicted_pixel_is_framed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "png", lambda figure: figure)
    image, maps = np.zeros((4, 5, 1), np.uint8), np.ones((2, 4, 5))
    figure: Any = render.PixelAttention(image, 2, [(3, 1), (0, 4)], maps).draw()
    frames = [panel.patches[0] for panel in figure.axes]
    assert [frame.get_bbox().bounds for frame in frames] == [(0.5, 2.5, 1, 1), (3.5, -0.5, 1, 1)]


@pytest.mark.parametrize("levels", [2, 4, 16, 17, 100, 255, 256])
def test_scaling_never_wraps_keeps_order_and_both_ends(levels: int) -> None:
    scaled = render.to_bytes(np.arange(levels), levels).astype(int)
    assert scaled[0] == 0
    assert scaled[-1] == 255  # white stays white
    assert (np.diff(scaled) > 0).all()
    exact = np.arange(levels) * 255 / (levels - 1)
    assert np.abs(scaled - exact).max() <= 0.5


def test_a_grid_does_not_stretch_what_it_holds(tmp_path: Path) -> None:
    dim = torch.full((2, 3, 3, 1), 4, dtype=torch.uint8)
    alone = render.write_grid(tmp_path / "a.png", dim, 17)
    beside = render.write_grid(tmp_path / "b.png", torch.cat([dim, torch.full_like(dim, 16)]), 17)
    assert alone[2, 2, 0] == beside[2, 2, 0] == 64


@pytest.mark.parametrize(("n_classes", "columns"), [(0, 3), (2, 2), (17, 3)])
def test_images_lie_row_by_row_not_transposed(tmp_path: Path, n_classes: int, columns: int) -> None:
    height, width, zoom, line = 24, 32, 3, 2
    pixels = torch.randint(0, 256, (5, height, width, 3), dtype=torch.uint8)
    laid = render.write_grid(tmp_path / "grid.png", pixels, 256, n_classes)
    high, wide = zoom * height + line, zoom * width + line
    assert laid.shape == (line + -(-5 // columns) * high, line + columns * wide, 3)
    for index, image in enumerate(pixels.numpy()):
        top, left = line + index // columns * high, line + index % columns * wide
        shown = laid[top : top + zoom * height, left : left + zoom * width]
        assert np.array_equal(shown[::zoom, ::zoom], image)
        assert np.array_equal(shown[zoom - 1 :: zoom, zoom - 1 :: zoom], image)
    assert (laid[-high:, -wide:] == render.GRID_LINE_GREY).all()  # the empty place


@pytest.mark.parametrize("channels", [1, 3])
def test_the_file_holds_the_array(tmp_path: Path, channels: int) -> None:
    pixels = torch.randint(0, 17, (5, 8, 6, channels), dtype=torch.uint8)
    array = render.write_grid(tmp_path / "new" / "grid.png", pixels, 17)
    read = np.asarray(Image.open(tmp_path / "new" / "grid.png"))
    assert np.array_equal(read if channels == 3 else read[..., None], array)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["grid.png"]


def test_values_of_this_package_cannot_be_changed() -> None:
    assert not changeable_dataclasses("triptych.domains.pictures")
    assert not positional_options("triptych.domains.pictures")
    found = names_of_many_defaults("triptych.domains.pictures")
    assert found == {"validation_size"}
