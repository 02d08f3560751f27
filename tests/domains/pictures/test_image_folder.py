"""A user's own folder: classes, splits by content, sizes, damage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starter_data import write_images

from triptych.domains.pictures import image_folder
from triptych.domains.pictures.decode import Pixels, decode_pages
from triptych.domains.pictures.image_folder import ImageFolder
from triptych.errors import UserError
from triptych.files.splits import split_by_hash

HEIGHT, WIDTH = 4, 6  # not square on purpose


fill = partial(write_images, shape=(HEIGHT, WIDTH, 3))


def source(folder: Path, **options: object) -> ImageFolder:
    settings: dict[str, object] = {"height": HEIGHT, "width": WIDTH, "channels": 3} | options
    return ImageFolder(directory=str(folder), **settings)  # type: ignore[arg-type]


def test_pixels_come_back_exactly_and_height_is_not_width(tmp_path: Path) -> None:
    arrays = fill(tmp_path, 40)
    parts = [source(tmp_path).load(split) for split in ("train", "validation", "test")]
    assert sum(len(part) for part in parts) == 40
    assert all(part.pixels.shape[1:] == (HEIGHT, WIDTH, 3) for part in parts)
    found = {row.numpy().tobytes() for part in parts for row in part.pixels}
    assert found == {array.tobytes() for array in arrays}
    assert parts[0].labels is None


def test_sub_folders_are_classes(tmp_path: Path) -> None:
    fill(tmp_path / "cats", 20, seed=1)
    dogs = fill(tmp_path / "dogs", 20, seed=2)
    train = source(tmp_path).load("train")
    assert train.class_names == ("cats", "dogs")
    assert train.labels is not None
    of_dogs = {array.tobytes() for array in dogs}
    for row, label in zip(train.pixels, train.labels, strict=True):
        assert (row.numpy().tobytes() in of_dogs) == (int(label) == 1)
    fill(tmp_path, 1)
    with pytest.raises(UserError, match="all images into sub-folders or none"):
        source(tmp_path).load("train")


def test_split_goes_by_content_not_by_name_or_neighbours(tmp_path: Path) -> None:
    fill(tmp_path / "a", 30)
    before = {row.numpy().tobytes() for row in source(tmp_path / "a").load("validation").pixels}
    for index, path in enumerate(sorted((tmp_path / "a").iterdir())):
        path.rename(path.with_name(f"x{99 - index}.png"))
    fill(tmp_path / "a", 30, seed=5)
    after = {row.numpy().tobytes() for row in source(tmp_path / "a").load("validation").pixels}
    assert before <= after


def test_split_fractions_are_near_what_was_asked() -> None:
    splits = [
        split_by_hash(str(number).encode(), {"validation": 0.2, "test": 0.1})
        for number in range(2000)
    ]
    assert abs(splits.count("validation") / 2000 - 0.2) < 0.03
    assert abs(splits.count("test") / 2000 - 0.1) < 0.03


def test_wrong_size_is_one_sentence_with_file_found_and_expected(tmp_path: Path) -> None:
    fill(tmp_path, 20)
    Image.new("RGB", (9, 5)).save(tmp_path / "odd.png")
    with pytest.raises(UserError, match=r"odd\.png is 9 wide and 5 high.*expected 6 wide and 4"):
        source(tmp_path).load("all")
    assert source(tmp_path, resize=True).load("train").pixels.shape[1:] == (HEIGHT, WIDTH, 3)


def test_images_of_another_split_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 40)
    decoded = []

    def counted(content: bytes, channels: int, **options: Any) -> Iterator[Pixels]:
        decoded.append(content)
        return decode_pages(content, channels, **options)

    monkeypatch.setattr(image_folder, "decode_pages", counted)
    lengths = {split: len(source(tmp_path).load(split)) for split in ("train", "validation")}
    assert len(decoded) == sum(lengths.values()) < 40


def test_corrupt_images_are_skipped_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 20)
    whole = (tmp_path / "000.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.jpg").write_text("not an image")
    with caplog.at_level(logging.WARNING):
        images = source(tmp_path).load("all")
    assert "skipped 2 of 22 files" in caplog.text
    assert "cut.png (" in caplog.text
    assert "text.jpg (" in caplog.text
    assert len(images) == 20


def test_empty_folder_and_empty_split_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no images"):
        source(tmp_path).load("train")
    fill(tmp_path, 1)
    loaded = {}
    for split in ("train", "validation", "test"):
        try:
            loaded[split] = len(source(tmp_path).load(split))
        except UserError as error:
            assert "belongs to the split" in str(error)  # noqa: PT017
    assert loaded in ({"train": 1}, {"validation": 1}, {"test": 1})
    with pytest.raises(UserError, match="does not exist"):
        source(tmp_path / "nowhere").load("train")


def test_shares_that_leave_nothing_to_train_on_are_refused() -> None:
    with pytest.raises(ValueError, match="train on"):
        source(Path("anywhere"), test_share=0.95)
