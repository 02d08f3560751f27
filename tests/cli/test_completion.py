"""`triptych sample image --complete`: files in, completions and a grid out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def sampled(cli, tmp_path: Path, image_checkpoint: Path) -> Path:
    """A folder with a folder of samples and their grid, no picture, for each of two classes."""
    command = ["sample", "image", "--checkpoint", image_checkpoint, "--count", 2]
    for name in ("3", "7"):
        assert cli(*command, "--seed", name, "--out", f"in/{name}").code == 0
    return tmp_path / "in"


def read(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


@pytest.mark.parametrize("mask", ["bottom", "left", "mask.png"])
def test_known_pixels_come_back_bit_equal(
    cli, sampled: Path, tmp_path: Path, image_checkpoint: Path, mask: str
) -> None:
    filled = np.zeros((8, 8), bool)
    filled[{"bottom": slice(4, None), "left": slice(None), "mask.png": slice(2, 5)}[mask]] = True
    if mask == "left":
        filled[:, 4:] = False
    Image.fromarray(np.where(filled, 255, 0).astype(np.uint8)).save(tmp_path / "mask.png")
    command = ["sample", "image", "--checkpoint", image_checkpoint, "--complete", sampled]
    answer = cli(*command, "--mask", mask, "--count", 3, "--out", "out")
    assert answer.code == 0, answer
    originals = sorted(sampled.rglob("sample-*.png"))
    assert len(list((tmp_path / "out").iterdir())) == 3 * len(originals) + 1
    changed = 0
    for index, original in enumerate(originals):
        for number in range(3 * index, 3 * index + 3):
            made = read(tmp_path / "out" / f"sample-{number:04d}.png")
            assert np.array_equal(made[~filled], read(original)[~filled])
            changed += int((made != read(original)).any())
    assert changed > 0
    grid = read(tmp_path / "out" / "grid.png")  # [rows of pictures, 2 + 3 columns, RGB]
    assert grid.shape == (2 + 4 * 98, 2 + 5 * 98, 3)
    first = grid[2:98:12, 2:98:12, 0]
    assert np.array_equal(first, read(originals[0]))


def test_bad_input_is_refused_in_one_sentence(
    refused, sampled: Path, tmp_path: Path, image_checkpoint: Path
) -> None:
    Image.new("L", (9, 8), 255).save(tmp_path / "wide.png")
    (tmp_path / "damaged.png").write_bytes(b"no image")
    (tmp_path / "empty").mkdir()
    command = ["sample", "image", "--checkpoint", image_checkpoint, "--out", "out"]
    picture = sampled / "3" / "sample-0000.png"
    complete = [*command, "--complete", picture]
    for options, says in [
        ([*complete, "--mask", "wide.png"], ["wide.png", "9 wide and 8 high", "8 wide and 8"]),
        ([*complete, "--mask", "none.png"], ["--mask none.png does not exist"]),
        ([*complete], ["complete names pictures and mask the pixels to fill"]),
        ([*complete, "--mask", "top", "--label", "10"], ["label is 10"]),
        ([*complete, "--mask", "top", "--compile", "true"], ["compile is not available"]),
        ([*command, "--mask", "top", "--complete", "wide.png"], ["wide.png", "8 wide and 8 high"]),
        ([*command, "--mask", "top", "--complete", "damaged.png"], ["damaged.png cannot be read"]),
        ([*command, "--mask", "top", "--complete", "none"], ["--complete none does not exist"]),
        ([*command, "--mask", "top", "--complete", "empty"], ["empty holds no images"]),
    ]:
        refused(*options, says=says)
    loose = tmp_path / "loose.png"
    loose.write_bytes(picture.read_bytes())
    refused(*command, "--complete", loose, "--mask", "top", says=["class of", "--label"])


def test_existing_completions_are_kept(cli, refused, sampled: Path, image_checkpoint: Path) -> None:
    command = ["sample", "image", "--checkpoint", image_checkpoint, "--complete", sampled / "3"]
    command += ["--mask", "bottom", "--count", "1", "--out", "out"]
    assert cli(*command).code == 0
    refused(*command, says=["out already holds grid.png"])
    assert cli(*command, "--overwrite").code == 0
