"""Image files of every kind: number ranges, transparency, pages, orientation, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starter_data import write_images

from triptych.domains.pictures.decode import ValueRangeError, decode_pages, image_suffixes
from triptych.domains.pictures.image_folder import ImageFolder
from triptych.domains.pictures.options import Reading
from triptych.errors import UserError

Array = np.ndarray[Any, np.dtype[Any]]
DEEP = Reading(value_range=(0, 65535))


def decoded(
    path: Path, *, channels: int = 1, reading: Reading | None = None, size: Any = (2, 3)
) -> tuple[list[Array], set[str]]:
    notes: set[str] = set()
    images = decode_pages(path.read_bytes(), channels, reading=reading or Reading(), notes=notes)
    decoded = list(images)
    assert {pixels.shape for pixels in decoded} == {(*size, channels)}
    return decoded, notes


def folder_of(path: Path, **options: Any) -> ImageFolder:
    return ImageFolder(**{"directory": str(path), "height": 2, "width": 3, "channels": 1} | options)


def test_grey_keeps_all_256_levels(tmp_path: Path) -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(8, 32)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    ((pixels,), _) = decoded(tmp_path / "ramp.png", size=(8, 32))
    assert np.array_equal(pixels[..., 0], ramp)


def test_of_sixteen_bits_the_upper_eight_are_kept(tmp_path: Path) -> None:
    every = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    Image.fromarray(every).save(tmp_path / "deep.png")
    ((pixels,), notes) = decoded(tmp_path / "deep.png", reading=DEEP, size=(256, 256))
    assert np.array_equal(pixels[..., 0], every >> 8)
    assert not notes


@pytest.mark.parametrize(
    ("kind", "highest", "ending"),
    [
        ("<u2", 4095, "png"), ("<u2", 1023, "tif"), (">u2", 4095, "tif"), ("<i4", 255, "tif"),
        ("<f4", 1, "tif"),
    ],
)  # fmt: skip
def test_more_than_eight_bits_are_scaled_by_one_range_of_all_images(
    kind: str, highest: int, ending: str, tmp_path: Path
) -> None:
    parts = np.arange(256).reshape(16, 16) / 255
    values = (parts * highest).astype(kind)
    for number, content in enumerate((values, (values // 2).astype(kind))):
        mode = {"<u2": "I;16", ">u2": "I;16B", "<i4": "I", "<f4": "F"}[kind]
        Image.frombytes(mode, (16, 16), content.tobytes()).save(tmp_path / f"{number}.{ending}")
    size = {"height": 16, "width": 16}
    with pytest.raises(UserError, match=r"values from 0 to \S+ \(Pillow's mode .*value_range"):
        folder_of(tmp_path, **size).load("all")
    images = folder_of(tmp_path, value_range=(0, highest), **size).load("all")
    found = images.pixels.flatten(1).sort(0).values[1]  # the larger value of both images
    assert (found - np.arange(256)).abs().max() <= 1
    assert images.vocabulary()["reading"]["value_range"] == [0, highest]


@pytest.mark.parametrize(
    ("lowest", "highest", "whole", "expected"),
    [
        (0, 3987, True, [0, 4095]), (3, 255, True, [0, 255]), (-1024, 3071, True, [-1024, 3071]),
        (0.1, 0.9, False, [0, 1]), (0, 9.5, False, [0, 9.5]), (0, 0, True, [0, 1]),
    ],
)  # fmt: skip
def test_a_range_is_that_of_so_many_bits_or_of_the_values(
    lowest: float, highest: float, whole: bool, expected: list[float]
) -> None:
    assert ValueRangeError("I", lowest, highest, whole).suggested() == expected


def test_values_outside_of_the_range_and_missing_ones(tmp_path: Path) -> None:
    values = np.array([[np.nan, -5, 0], [0.5, 1, np.inf]], dtype=np.float32)
    Image.fromarray(values).save(tmp_path / "f.tif")
    ((pixels,), notes) = decoded(tmp_path / "f.tif", reading=Reading(value_range=(0, 1)))
    assert pixels[..., 0].tolist() == [[0, 0, 0], [128, 255, 255]]
    assert notes == {"clipped"}


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
@pytest.mark.parametrize("background", ["white", "black", "#102030"])
def test_transparent_pixels_get_the_background(mode: str, background: str, tmp_path: Path) -> None:
    grey = np.array([[0, 100, 255], [255, 255, 255]], dtype=np.uint8)
    alpha = np.array([[255, 255, 255], [0, 0, 0]], dtype=np.uint8)
    image = Image.fromarray(grey)
    if mode == "P":
        image = image.convert("P")
        image.putpixel((0, 1), 7), image.putpixel((1, 1), 7), image.putpixel((2, 1), 7)
        image.save(tmp_path / "a.png", transparency=7)
    else:
        image.putalpha(Image.fromarray(alpha))
        image.convert(mode).save(tmp_path / "a.png")
    reading = Reading(background)
    ((pixels,), notes) = decoded(tmp_path / "a.png", channels=3, reading=reading)
    colour = {"white": [255] * 3, "black": [0] * 3, "#102030": [16, 32, 48]}[background]
    assert pixels[0].tolist() == [[0] * 3, [100] * 3, [255] * 3]
    assert pixels[1].tolist() == [colour] * 3
    assert not notes


def test_images_of_one_colour_after_transparency_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stroke = np.full((2, 3, 4), 255, dtype=np.uint8)
    for number in range(4):
        stroke[..., 3] = np.arange(6).reshape(2, 3) * 40 + number
        Image.fromarray(stroke).save(tmp_path / f"{number}.png")
    write_images(tmp_path, 2, (2, 3))
    folder_of(tmp_path).load("all")
    assert "(white): 4 of 6 files, 0.png" in caplog.text
    caplog.clear()
    images = folder_of(tmp_path, background="black").load("all")
    assert not caplog.text
    assert int(images.pixels.amin()) < 5
    assert images.vocabulary()["reading"]["background"] == "black"
    with pytest.raises(ValueError, match="a colour such as"):
        folder_of(tmp_path, background="nothing")


def test_each_page_of_a_tiff_is_an_image_and_the_first_frame_of_an_animation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pages = [Image.fromarray(np.full((2, 3), 40 * n, dtype=np.uint8)) for n in range(1, 6)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    for ending in ("gif", "webp", "png"):
        pages[0].save(tmp_path / f"a.{ending}", save_all=True, append_images=pages[1:])
    images = folder_of(tmp_path).load("all")
    assert len(images) == 5 + 3
    assert {40, 80, 120, 160, 200} <= {*images.pixels[:, 0, 0, 0].tolist()}
    assert "first of several frames is read: 3 of 4 files, a.gif, a.png, a.webp" in caplog.text


def test_smaller_copies_and_damaged_pages_of_a_tiff(tmp_path: Path) -> None:
    large, small = Image.new("L", (3, 2), 9), Image.new("L", (1, 1), 9)
    small.encoderinfo = {"tiffinfo": {254: 1}}  # a reduced copy, as of a pyramid
    large.save(tmp_path / "p.tif", save_all=True, append_images=[small, large])
    assert len(decoded(tmp_path / "p.tif")[0]) == 2
    noise = [Image.fromarray(array) for array in write_images(tmp_path, 3, (64, 64))]
    noise[0].save(tmp_path / "n.tif", save_all=True, append_images=noise[1:])
    content = (tmp_path / "n.tif").read_bytes()
    (tmp_path / "n.tif").write_bytes(content[: len(content) - 3000])
    images, notes = decoded(tmp_path / "n.tif", size=(64, 64))
    assert (len(images), notes) == (2, {"pages"})


@pytest.mark.parametrize("mode", ["L", "I;16", "RGBA", "CMYK"])
def test_images_are_turned_as_the_camera_says(mode: str, tmp_path: Path) -> None:
    ending = "jpg" if mode == "CMYK" else "png"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new(mode, (3, 2)).save(tmp_path / f"a.{ending}", exif=exif)
    images, _ = decoded(tmp_path / f"a.{ending}", size=(3, 2), reading=DEEP)
    assert images[0].shape == (3, 2, 1)


def test_a_damaged_orientation_costs_no_image(tmp_path: Path) -> None:
    Image.new("L", (3, 2), 9).save(tmp_path / "a.png", exif=b"Exif\0\0MM")
    images, notes = decoded(tmp_path / "a.png")
    assert (len(images), notes) == (1, {"turned"})


def test_every_format_that_pillow_writes_is_read(tmp_path: Path) -> None:
    Image.init()
    written = 0
    for ending in image_suffixes():
        form = Image.registered_extensions()[ending]
        try:
            Image.new("L", (16, 16), 77).save(tmp_path / f"a{ending.upper()}", format=form)
            written += 1
        except (KeyError, OSError, ValueError):  # only read, or another mode or size
            (tmp_path / f"a{ending.upper()}").unlink(missing_ok=True)
    assert written > 20
    assert len(folder_of(tmp_path, resize=True).load("all")) == written
    assert {".png", ".jfif", ".tga", ".jp2", ".pnm"} <= {*image_suffixes()}
    assert not {".pdf", ".eps", ".mpg"} & {*image_suffixes()}


def test_what_is_no_image_is_named_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path, 6, (2, 3))
    Image.new("1", (500, 500)).save(tmp_path / "huge.png")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    for junk in ("._000.png", "Thumbs.db", ".DS_Store", "__MACOSX/b.png"):
        (tmp_path / junk).parent.mkdir(exist_ok=True)
        (tmp_path / junk).write_bytes(b"junk")
    for number in range(7):
        (tmp_path / f"{number}.HEIC").write_bytes(b"heic")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)
    assert len(folder_of(tmp_path).load("all")) == 6
    assert folder_of(tmp_path).load("all")
    assert "huge.png (more than 200,000 pixels)" in caplog.text
    assert "text.png (no image that" in caplog.text
    assert "gone.png (No such file" in caplog.text
    assert caplog.text.count("7 other files left out: 7 .heic") == 1, "it is said once"
    assert "junk" not in caplog.text
    assert "db" not in caplog.text


def test_dark_images_are_said_to_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(6):  # values to 9 of 255, such as numbers of classes
        Image.new("L", (3, 2), number + 4).save(tmp_path / f"{number}.png")
    folder_of(tmp_path).load("all")
    assert "no value is above 9 of 255" in caplog.text
