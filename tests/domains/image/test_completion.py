"""Completion: given pixels stay, filled ones have the model's conditional distribution."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_image import tiny_image

from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.heads import Categorical, HeadConfig, MixtureOfLogistics
from triptych.decoding.sampling import sample_value
from triptych.domains.image.domain import HALVES, ImageSampleOptions
from triptych.domains.image.given import filled_pixels
from triptych.domains.image.inference import ImageModel
from triptych.domains.pictures import render
from triptych.domains.pictures.data import ImageDataset
from triptych.domains.pictures.given import read_pictures
from triptych.domains.pictures.options import SAMPLE, Reading
from triptych.errors import UserError
from triptych.files.progress import displayed_by
from triptych.files.results import OutputFolder
from triptych.types import Progress, Sampling

SHAPE, LEVELS = (4, 6, 3), 5


def model_of(
    attention: AttentionConfig | None = None,
    head: HeadConfig | None = None,
    shape: tuple[int, int, int] = SHAPE,
    n_classes: int = 3,
) -> ImageModel:
    attention = attention or Local2D(2, 3, 1, 1, "blocks")
    return tiny_image(
        shape, LEVELS, attention=attention, head=head, n_classes=n_classes, sharp=True
    )


def pictures(count: int = 3) -> np.ndarray[Any, np.dtype[np.uint8]]:
    values = np.random.default_rng(1).integers(0, LEVELS, (count, *SHAPE))
    return values.astype(np.uint8)


@pytest.mark.parametrize("head", [Categorical(), MixtureOfLogistics(components=2)])
@pytest.mark.parametrize("attention", [Full(), Local2D(2, 3, 1, 1, "blocks"), Local2D(2, 2, 2, 1)])
@pytest.mark.parametrize("mask", HALVES)
def test_given_pixels_come_back_unchanged(
    attention: AttentionConfig, head: HeadConfig, mask: str
) -> None:
    images, filled = pictures(), filled_pixels(mask, 4, 6).numpy()
    made = model_of(attention, head).complete(images, filled, 4, labels=[0, 2, 1])
    assert made.shape == (3, 4, *SHAPE)
    assert (made[:, :, ~filled] == images[:, None][:, :, ~filled]).all()
    assert len({image.tobytes() for image in made[0]}) > 1
    assert made.max() < LEVELS


@pytest.mark.parametrize("attention", [Full(), Local2D(2, 3, 1, 1, "blocks"), Local2D(2, 2, 2, 1)])
@pytest.mark.parametrize("mask", ["bottom", "right"])
def test_a_completion_is_that_of_the_model_without_a_cache(
    attention: AttentionConfig, mask: str
) -> None:
    trained = model_of(attention)
    model, images, filled = trained.full_model.eval(), pictures(), filled_pixels(mask, 4, 6)
    known = model.to_sequence((~filled)[None, ..., None].expand(1, *SHAPE))[0].bool()  # [L]
    values = model.to_sequence(torch.from_numpy(images))
    condition = model.condition(torch.tensor([0, 2, 1]))
    generator = torch.Generator().manual_seed(4)
    start = int((~known).nonzero()[0])
    for t in range(start, values.shape[1]):
        with torch.no_grad():
            parameters = model.core(values, condition=condition)[:, t]
        value = sample_value(model.core.head, parameters, Sampling(), generator)
        values[:, t] = values[:, t] if known[t] else value
    by_hand = model.to_images(values).numpy()
    made = trained.complete(images, filled.numpy(), labels=[0, 2, 1], passes=0, seed=4)
    assert np.array_equal(made[:, 0], by_hand)


@pytest.mark.slow
def test_given_pixels_after_the_filled_ones_count() -> None:
    trained, count = model_of(Full(), shape=(1, 3, 1), n_classes=0), 6000
    every = torch.tensor(list(product(range(LEVELS), repeat=3)), dtype=torch.uint8)
    with torch.no_grad():
        log_p = -trained.full_model.eval().nll(every.view(-1, 1, 3, 1)).sum(1)
    p = log_p.exp() * (every[:, 1] == 4) * (every[:, 2] == 0)
    exact = (p / p.sum()).view(LEVELS, -1).sum(1)  # of the first pixel
    image = np.array([0, 4, 0], np.uint8).reshape(1, 1, 3, 1)
    filled = np.array([[True, False, False]])

    def error(passes: int | None) -> float:
        made = trained.complete(image, filled, count, passes=passes)[0, :, 0, 0, 0]
        found = torch.bincount(torch.from_numpy(made).long(), minlength=LEVELS) / count
        return float((found - exact).abs().max())

    assert error(None) < 0.03
    assert error(0) > 0.06


def test_given_first_depends_on_the_generation_order() -> None:
    bottom, left = (filled_pixels(mask, 4, 6) for mask in ("bottom", "left"))
    for attention in (Full(), Local2D(2, 3, 1, 1, "blocks")):
        assert model_of(attention).full_model.given_first(bottom)
        assert not model_of(attention).full_model.given_first(left)
    one_row = Local2D(4, 3, 1, 1, "blocks")
    assert model_of(one_row).full_model.given_first(filled_pixels("right", 4, 6))


def test_named_masks_are_halves() -> None:
    top, bottom, left, right = (filled_pixels(mask, 5, 3) for mask in HALVES)
    assert torch.equal(top, ~bottom)
    assert torch.equal(left, ~right)
    assert top[:2].all()
    assert not top[2:].any()
    assert left[:, :1].all()
    assert not left[:, 1:].any()


def test_a_mask_file_is_white_where_pixels_are_filled(tmp_path: Path) -> None:
    wanted = torch.rand(4, 6) < 0.5
    pixels = np.where(wanted.numpy(), 255, 0).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    assert torch.equal(filled_pixels(str(tmp_path / "mask.png"), 4, 6), wanted)
    with pytest.raises(UserError, match=r"6 wide and 4 high.*expected 4 wide and 6 high"):
        filled_pixels(str(tmp_path / "mask.png"), 6, 4)
    Image.fromarray(pixels * 0).save(tmp_path / "mask.png")
    with pytest.raises(UserError, match="fills no pixel"):
        filled_pixels(str(tmp_path / "mask.png"), 4, 6)


@pytest.mark.parametrize("levels", [2, 4, 16, 17, 128, 255, 256])
def test_a_picture_file_has_the_levels_that_were_written(tmp_path: Path, levels: int) -> None:
    values = np.arange(levels, dtype=np.uint8)
    written = render.to_bytes(values, levels).reshape(1, -1, 1)
    render.write_png(tmp_path / "p.png", written)
    read = read_pictures(str(tmp_path / "p.png"), [(1, levels, 1)], levels, Reading())
    assert read[tmp_path / "p.png"].flatten().tolist() == values.tolist()


def test_a_picture_is_read_as_the_training_images_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stroke = np.full((4, 6, 4), 255, np.uint8)
    stroke[1:, :, 3] = 0
    Image.fromarray(stroke).save(tmp_path / "stroke.png")
    Image.fromarray(np.full((4, 6), 2048, np.uint16)).save(tmp_path / "deep.png")
    model = model_of(n_classes=0)

    def row(name: str, reading: dict[str, Any] | None = None, **options: Any) -> list[int]:
        model.vocabulary = {key: x for key, x in model.vocabulary.items() if key != "reading"}
        model.vocabulary |= {"reading": reading} if reading else {}
        options |= {"complete": str(tmp_path / name), "mask": "bottom", "count": 1}
        out = OutputFolder(str(tmp_path / "out"), overwrite=True)
        model.write_samples(options_of(out.path, **options), out)
        pixels = np.asarray(Image.open(tmp_path / "out" / SAMPLE.format(0)))
        return pixels[:2, 0, 0].tolist()

    assert row("stroke.png") == [255, 255]
    assert "stroke.png: one colour is left" in caplog.text
    assert row("stroke.png", background="black") == [255, 0]
    assert row("stroke.png", {"background": "black"}) == [255, 0]
    assert row("stroke.png", {"background": "black"}, background="white") == [255, 255]
    with pytest.raises(UserError, match=r"values from 2048 to 2048 .* expected 8 bits"):
        row("deep.png")
    assert row("deep.png", {"value_range": [0, 4095]})[0] in (127, 128)


def test_a_picture_has_the_levels_that_its_data_would_have() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1)
    for bits in range(1, 8):
        expected = ImageDataset(every, None, 256).quantize(bits).pixels
        assert np.array_equal(render.to_levels(every.numpy(), 2**bits), expected)
    assert render.to_levels(np.array([0, 7, 8, 255], np.uint8), 17).tolist() == [0, 0, 1, 16]


def test_settings_that_cannot_be_resampled_are_refused() -> None:
    images, filled = pictures(), filled_pixels("top", 4, 6).numpy()
    for options in ({"temperature": 0.0}, {"top_k": 2}, {"top_p": 0.5}):
        with pytest.raises(UserError, match="passes need"):
            model_of().complete(images, filled, labels=[0, 0, 0], **options)
        model_of().complete(images, filled, labels=[0, 0, 0], passes=0, **options)
    with pytest.raises(UserError, match="passes need"):
        model_of(head=MixtureOfLogistics(components=2)).complete(
            images, filled, labels=[0, 0, 0], temperature=0.5
        )
    with pytest.raises(UserError, match="labels are needed"):
        model_of().complete(images, filled)


def options_of(out: Path, **options: Any) -> ImageSampleOptions:
    return ImageSampleOptions(checkpoint="model.ckpt", out=str(out), **options)


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    both = {"complete": "a.png", "mask": "top"}
    for wrong in (
        both | {"upscale": "b.png"}, {"complete": "a.png"}, {"mask": "top"}, {"passes": 0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{'|'.join(wrong)}"):
            options_of(tmp_path, **wrong)
    named = options_of(tmp_path, complete="a.png", mask="m.png", passes=0)
    assert named.input_files().keys() == {"complete", "mask"}
    assert len(named.output_names()) == 1
    assert options_of(tmp_path, complete=str(tmp_path), mask="top").input_files() == {}
    assert len(options_of(tmp_path, count=3).output_names()) == 4


@pytest.mark.parametrize("label", [None, 1])
def test_pictures_of_a_folder_are_completed_one_row_each(tmp_path: Path, label: int | None) -> None:
    (tmp_path / "c").mkdir()
    values, steps = pictures(2), []
    for number, pixels in enumerate(values):
        render.write_png(tmp_path / "c" / f"{number}.png", render.to_bytes(pixels, LEVELS))

    def report(what: str, *, at_most: bool = False) -> Progress:
        return lambda done, total: steps.append((done, total))

    model, out = model_of(), OutputFolder(str(tmp_path / "out"), overwrite=False)
    options = options_of(
        out.path, complete=str(tmp_path / "c"), mask="top", count=2, label=label, seed=5, passes=1
    )
    with displayed_by(report):
        model.write_samples(options, out)
    filled = filled_pixels("top", 4, 6).numpy()
    labels = [2, 2] if label is None else [label, label]
    expected = model.complete(values, filled, count=2, labels=labels, seed=5, passes=1)
    found = [np.asarray(Image.open(out.path / SAMPLE.format(n))) for n in range(4)]
    written = render.to_bytes(expected.reshape(4, *SHAPE), LEVELS)
    assert (np.stack(found) == written).all()
    done, total = zip(*steps, strict=True)
    assert list(done) == sorted(done)
    assert 0 < done[0] < total[0] // 2 < done[-1] <= total[-1]
    with pytest.raises(UserError, match="already holds"):
        model.write_samples(options, out)
    if label is None:
        (tmp_path / "c").rename(tmp_path / "unknown")
        with pytest.raises(UserError, match="the class of"):
            model.write_samples(
                replace(options, complete=str(tmp_path / "unknown"), out="o"),
                OutputFolder(str(tmp_path / "o"), overwrite=False),
            )
