"""Classes of images: patches, random moves, scores, simple models, what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from triptych.core.layers import GELU
from triptych.core.positions import Axial
from triptych.core.transformer import TransformerConfig
from triptych.domains.pictures.data import Batch, ImageDataset
from triptych.domains.vision.domain import LABELS, VisionSampleOptions
from triptych.domains.vision.inference import VisionModel, simple_accuracies
from triptych.domains.vision.model import (
    ModelConfig,
    VisionSettings,
    VisionTransformer,
    augmented,
    patches,
)
from triptych.errors import UserError
from triptych.files.results import OutputFolder

SHAPE, LEVELS, NAMES = (4, 6, 3), 16, ["a", "b", "c", "d"]
VOCABULARY = {"shape": list(SHAPE), "levels": LEVELS, "class_names": NAMES}


def trained(*, random_head: bool = False) -> VisionModel:
    torch.manual_seed(0)
    parts = TransformerConfig(
        n_layers=1, d_model=12, n_heads=2, dropout=0.0, feed_forward=GELU(16), positions=Axial()
    )
    settings = VisionSettings(ModelConfig(parts, patch=2))
    model = settings.build_model(VOCABULARY)
    if random_head:
        torch.nn.init.normal_(model.task_head.linear.weight)
    return VisionModel(settings, model, VOCABULARY)


def images(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(LEVELS, (count, *SHAPE), generator=generator, dtype=torch.uint8)


def test_patches_from_the_definition() -> None:
    pixels, cut = images(2), patches(images(2), 2)  # [B, N, P]
    assert cut.shape == (2, 6, 12)
    for row in range(2):
        for column in range(3):
            tile = pixels[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            assert torch.equal(cut[:, 3 * row + column], tile.flatten(1))


def test_augmented_images_are_moved_and_mirrored_ones() -> None:
    torch.manual_seed(0)
    pixels = images(1).clamp(min=1)
    padded = np.pad(pixels[0].numpy(), ((1, 1), (1, 1), (0, 0)))
    moved = {
        (down, right, flipped): padded[down : down + 4, right : right + 6]
        for down in range(3)
        for right in range(3)
        for flipped in (False, True)
    }
    for key in moved:
        if key[2]:
            padded_back = np.pad(pixels[0].flip(1).numpy(), ((1, 1), (1, 1), (0, 0)))
            moved[key] = padded_back[key[0] : key[0] + 4, key[1] : key[1] + 6]
    names = {array.tobytes(): key for key, array in moved.items()}
    made = augmented(pixels.expand(300, -1, -1, -1), shift=1, mirrored=True)
    assert {names[each.numpy().tobytes()] for each in made} == moved.keys()
    assert torch.equal(augmented(pixels, shift=0, mirrored=False), pixels)


@torch.no_grad()
def test_a_new_model_gives_all_classes_equal_probability() -> None:
    model = trained()
    scores = model.score(Batch(images(5), torch.tensor([0, 1, 2, 3, 0])))
    assert model.metrics(scores)["nats_per_image"] == pytest.approx(math.log(4))
    np.testing.assert_allclose(model.classify(images(3).numpy()), 0.25)


@torch.no_grad()
def test_scores_from_the_definition() -> None:
    model, pixels = trained(random_head=True), images(7)
    labels = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    shares = model.classify(pixels.numpy())  # [7, 4]
    expected = {
        "nats_per_image": -np.log(shares[np.arange(7), labels]).mean(),
        "accuracy": (shares.argmax(1) == labels.numpy()).mean(),
    }
    assert model.metrics(model.score(Batch(pixels, labels))) == pytest.approx(expected)
    # Each image alone, and a patch in another place: positions count.
    each = [model.classify(pixels[i : i + 1].numpy())[0] for i in range(7)]
    np.testing.assert_allclose(each, shares, atol=1e-6)
    assert np.abs(model.classify(pixels.flip(1).numpy()) - shares).max() > 1e-4


def test_simple_models_from_the_definition() -> None:
    train = ImageDataset(images(30), torch.arange(30) % 4, LEVELS, tuple(NAMES))
    held_out = ImageDataset(images(50)[30:], torch.arange(20) % 4, LEVELS, tuple(NAMES))
    known = train.pixels.numpy().reshape(30, -1).astype(float)
    means = np.array([known[np.arange(30) % 4 == k].mean(0) for k in range(4)])
    right = {"nearest_mean": 0, "nearest_image": 0}
    for pixels, label in zip(held_out.pixels.numpy(), held_out.labels.tolist(), strict=True):
        flat = pixels.reshape(-1).astype(float)
        right["nearest_mean"] += np.square(means - flat).sum(1).argmin() == label
        right["nearest_image"] += np.square(known - flat).sum(1).argmin() % 4 == label
    expected = {name: count / 20 for name, count in right.items()}
    assert simple_accuracies(train, held_out) == pytest.approx(expected)


def test_patches_have_to_tile_the_image() -> None:
    with pytest.raises(ValueError, match="patch is 4, which does not divide"):
        VisionTransformer(ModelConfig(patch=4), SHAPE, levels=LEVELS, n_classes=4)


def label(model: VisionModel, folder: Path, pictures: Path) -> list[list[str]]:
    options = VisionSampleOptions(checkpoint="x", out=str(folder), pictures=str(pictures))
    out = OutputFolder(str(folder), overwrite=False)
    model.write_samples(options, out)
    return [line.split("\t") for line in (folder / LABELS).read_text().splitlines()]


def test_pictures_of_a_user_get_their_likeliest_class(tmp_path: Path) -> None:
    model, pixels = trained(random_head=True), images(3)
    (tmp_path / "in").mkdir()
    for number, image in enumerate(pixels.numpy()):
        scaled = np.round(image * (255 / (LEVELS - 1))).astype(np.uint8)
        Image.fromarray(scaled).save(tmp_path / f"in/{number}.png")
    rows = label(model, tmp_path / "out", tmp_path / "in")
    shares = model.classify(pixels.numpy())
    assert [row[0] for row in rows] == [str(tmp_path / f"in/{n}.png") for n in range(3)]
    assert [row[1] for row in rows] == [NAMES[k] for k in shares.argmax(1)]
    assert [float(row[2]) for row in rows] == pytest.approx(shares.max(1), abs=1e-4)
    Image.fromarray(np.zeros((5, 6, 3), np.uint8)).save(tmp_path / "in/3.png")
    with pytest.raises(UserError, match=r"3\.png is 6 wide and 5 high"):
        label(model, tmp_path / "again", tmp_path / "in")
