"""`triptych sample image --upscale`: small or large pictures in, large ones and a grid out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from triptych.domains.image.model import average_down
from triptych.domains.pictures.render import to_bytes, to_levels


@pytest.fixture
def checkpoint(cli, tmp_path: Path, digits_yaml: Path) -> Path:
    """A tiny model from 4x4 to 8x8 pixels."""
    options = ["--model.super_resolution.factor", 2, "--model.super_resolution.n_layers", 1]
    options += ["--model.class_conditional", "false"]
    answer = cli("train", "image", "--config", digits_yaml, *options)
    assert answer.code == 0, answer
    return tmp_path / "runs/run/checkpoints/best.ckpt"


def read(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


def write(path: Path, levels: np.ndarray) -> Path:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(to_bytes(levels, 17)).save(path)
    return path


def test_large_and_small_pictures_of_the_same_image_give_the_same_samples(
    cli, tmp_path: Path, checkpoint: Path
) -> None:
    levels = np.random.default_rng(0).integers(0, 17, (2, 8, 8)).astype(np.uint8)
    small = average_down(torch.from_numpy(levels)[..., None], 2)[..., 0].numpy()
    for index in range(2):
        write(tmp_path / "large" / f"{index}.png", levels[index])
        write(tmp_path / "small" / f"{index}.png", small[index])
    command = ["sample", "image", "--checkpoint", checkpoint, "--count", 3]
    for kind in ("large", "small"):
        answer = cli(*command, "--upscale", tmp_path / kind, "--out", f"from-{kind}")
        assert answer.code == 0, answer
        assert len(list((tmp_path / f"from-{kind}").iterdir())) == 2 * 3 + 1
    for index in range(6):
        first, second = (
            read(tmp_path / f"from-{kind}" / f"sample-{index:04d}.png")
            for kind in ("large", "small")
        )
        assert first.shape == (8, 8)
        assert np.array_equal(first, second)
    grids = [read(tmp_path / f"from-{kind}" / "grid.png") for kind in ("large", "small")]
    assert [grid.shape for grid in grids] == [(2 + 2 * 98, 2 + n * 98, 3) for n in (5, 4)]
    shown = to_levels(grids[0][2:98:24, 2:98:24, 0], 17)
    assert np.array_equal(shown, small[0])
    assert np.array_equal(to_levels(grids[0][2:98:12, -98:-2:12, 0], 17), levels[0])


def test_bad_input_is_refused_in_one_sentence(
    cli, refused, tmp_path: Path, checkpoint: Path, image_checkpoint: Path
) -> None:
    picture = write(tmp_path / "3" / "p.png", np.zeros((8, 8), np.uint8))
    Image.new("L", (5, 4)).save(tmp_path / "wide.png")
    command = ["sample", "image", "--out", "out", "--checkpoint"]
    for options, says in [
        ([image_checkpoint, "--upscale", picture], ["no encoder of small images"]),
        ([checkpoint], ["sampling without pictures", "--upscale"]),
        ([checkpoint, "--complete", picture, "--mask", "top"], ["completion needs a model"]),
        ([checkpoint, "--upscale", "wide.png"], ["5 wide", "4 wide and 4 high or 8 wide"]),
        ([checkpoint, "--upscale", "none.png"], ["--upscale none.png does not exist"]),
        ([checkpoint, "--upscale", picture, "--label", "3"], ["label is 3", "0 classes"]),
    ]:
        refused(*command, *options, says=says)
    options = ["--checkpoint", checkpoint, "--out", "out"]
    refused("attention", "image", *options, says=["sampling without pictures"])
    options = ["--config", "digits.yaml", "--run.name", "other", "--model.super_resolution.factor"]
    refused("train", "image", *options, 3, says=["factor 3 does not divide the height 8"])


def test_evaluation_reports_samples_and_halves(
    cli, refused, checkpoint: Path, image_checkpoint: Path
) -> None:
    limit = ["--limit", 4, "--checkpoint"]
    answer = cli("evaluate", "image", *limit, checkpoint, "--samples", 3)
    assert answer.code == 0, answer
    assert "super-resolution, 3 images" in answer.out
    answer = cli("evaluate", "image", *limit, image_checkpoint, "--mask", "bottom")
    assert answer.code == 0, answer
    assert "completion, 4 images" in answer.out
    for options, says in [
        ([checkpoint, "--mask", "bottom"], ["mask needs a model without super-resolution"]),
        ([image_checkpoint, "--samples", 3], ["no encoder of small images"]),
        ([image_checkpoint, "--mask", "none.png"], ["--mask none.png does not exist"]),
        ([image_checkpoint, "--mask", "half"], ["--mask half does not exist; expected top"]),
        ([image_checkpoint, "--mask", "top"], ["--mask bottom"]),
    ]:
        refused("evaluate", "image", *limit, *options, says=says)
