"""PNG grids: white stays white, nothing is stretched, files are whole or absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from triptych.domains.image import render
from triptych.errors import UserError


@pytest.mark.parametrize("levels", [2, 4, 16, 17, 100, 255, 256])
def test_scaling_never_wraps_keeps_order_and_both_ends(levels: int) -> None:
    scaled = render.to_bytes(np.arange(levels), levels).astype(int)
    assert scaled[0] == 0
    assert scaled[-1] == 255  # white stays white
    assert (np.diff(scaled) > 0).all()
    exact = np.arange(levels) * 255 / (levels - 1)
    assert np.abs(scaled - exact).max() <= 0.5


def test_256_levels_stay_as_they_are() -> None:
    values = torch.arange(256, dtype=torch.uint8)
    assert render.to_bytes(values, 256).tolist() == list(range(256))


def test_values_off_the_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="not all among the 17 levels"):
        render.to_bytes(np.array([0, 17]), 17)


def test_a_grid_does_not_stretch_what_it_holds() -> None:
    dim = torch.full((2, 3, 3, 1), 4, dtype=torch.uint8)
    alone = render.image_grid(dim, 17)
    beside = render.image_grid(torch.cat([dim, torch.full_like(dim, 16)]), 17)
    assert alone[1, 1, 0] == beside[1, 1, 0] == 64


def test_images_lie_row_by_row_not_transposed() -> None:
    height, width = 2, 3
    pixels = torch.arange(5 * height * width * 3, dtype=torch.uint8).view(5, height, width, 3)
    laid = render.image_grid(pixels, 256, columns=2, zoom=2, line=1)
    assert laid.shape == (1 + 3 * (4 + 1), 1 + 2 * (6 + 1), 3)
    fourth = laid[1 + 5 : 1 + 5 + 4, 1 + 7 : 1 + 7 + 6]  # second row, second column
    assert np.array_equal(fourth[::2, ::2], pixels[3].numpy())
    assert (laid[-5:, -7:] == render.GRID_LINE_GREY).all()  # the empty place


@pytest.mark.parametrize("channels", [1, 3])
def test_the_file_holds_the_array(tmp_path: Path, channels: int) -> None:
    pixels = torch.randint(0, 17, (5, 8, 6, channels), dtype=torch.uint8)
    array = render.write_grid(tmp_path / "new" / "grid.png", pixels, 17)
    read = np.asarray(Image.open(tmp_path / "new" / "grid.png"))
    assert np.array_equal(read if channels == 3 else read[..., None], array)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["grid.png"]


def test_single_images(tmp_path: Path) -> None:
    pixels = torch.randint(0, 256, (3, 4, 6, 3), dtype=torch.uint8)
    paths = render.write_images(tmp_path, pixels, 256)
    assert [path.name for path in paths] == [f"sample-000{index}.png" for index in range(3)]
    for path, image in zip(paths, pixels, strict=True):
        assert np.array_equal(np.asarray(Image.open(path)), image.numpy())


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        render.write_png(tmp_path / "file" / "a.png", np.zeros((2, 2, 1), dtype=np.uint8))
