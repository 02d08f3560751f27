"""A folder of images whose folders are splits; an order that does not depend on names."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from starter_data import write_images

from triptych.domains.pictures.data import ImageDataset
from triptych.domains.pictures.image_folder import ImageFolder
from triptych.errors import UserError


def fill(folder: Path, *parts: str, each: int) -> None:
    for part in parts:
        write_images(folder / part, each, (4, 4, 3), seed=zlib.crc32(part.encode()))


def source(folder: Path) -> ImageFolder:
    return ImageFolder(str(folder), height=4, width=4, channels=3)


def load(folder: Path) -> dict[str, ImageDataset]:
    return {split: source(folder).load(split) for split in ("train", "validation", "test")}


def labels(images: ImageDataset) -> list[int]:
    assert images.labels is not None
    return images.labels.tolist()


def test_folders_named_after_splits_are_splits_and_their_folders_classes(tmp_path: Path) -> None:
    fill(tmp_path, "train/cat", "train/dog", "val/cat", "val/dog", "test/dog", each=5)
    found = load(tmp_path)
    assert [len(images) for images in found.values()] == [10, 10, 5]
    assert {images.class_names for images in found.values()} == {("cat", "dog")}
    assert labels(found["test"]) == [1] * 5


def test_a_split_without_a_folder_is_taken_out_of_training_by_hash(tmp_path: Path) -> None:
    fill(tmp_path, "train", each=60)
    fill(tmp_path, "test", each=7)
    found = load(tmp_path)
    assert len(found["test"]) == 7
    assert 0 < len(found["validation"]) < 20
    assert len(found["train"]) + len(found["validation"]) == 60
    assert found["train"].labels is None


def test_the_first_images_are_of_all_classes(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b", "c", each=40)
    train = source(tmp_path).load("train")
    assert set(labels(train)[:15]) == {0, 1, 2}
    other = tmp_path / "other"
    for path in sorted(tmp_path.glob("*/*.png")):
        renamed = other / path.parent.name / f"{path.stem[::-1]}.png"
        renamed.parent.mkdir(parents=True, exist_ok=True)
        renamed.write_bytes(path.read_bytes())
    assert source(other).load("train").pixels.equal(train.pixels), "names do not matter"


@pytest.mark.parametrize(
    ("parts", "loose", "says"),
    [
        (["train/cat", "val/cat", "validation/cat"], False, "train, val, validation; expected one"),
        (["train/cat", "test/cow"], False, "000.png has the class cow, which the training"),
        (["train", "test"], True, "split folders test, train and also 000.png"),
        (["train/cat", "test/cat", "extra"], False, "split folders test, train and also extra"),
    ],
)
def test_folders_that_do_not_go_together(
    parts: list[str], loose: bool, says: str, tmp_path: Path
) -> None:
    fill(tmp_path, *parts, each=2)
    if loose:
        write_images(tmp_path, 1, (4, 4, 3))
    with pytest.raises(UserError, match=says):
        source(tmp_path).load("test" if "test" in " ".join(parts) else "train")


@pytest.mark.parametrize("name", ["test", "train"])
def test_a_class_may_be_called_as_a_split(tmp_path: Path, name: str) -> None:
    fill(tmp_path, name, "bus", each=5)
    assert source(tmp_path).load("train").class_names == ("bus", name)


@pytest.mark.parametrize(
    "parts",
    [
        ["training/cat", "training/dog", "testing/cat", "testing/dog"],
        ["seg_train/seg_train/cat", "seg_train/seg_train/dog", "seg_test/seg_test/dog"],
        ["archive/Train/cat", "archive/Train/dog", "archive/eval/cat"],  # in a folder around all
        ["pets_train/cat", "pets_train/dog", "pets_test/cat", "pets_dev/cat"],
        ["cat/train", "dog/train", "dog/test"],  # classes above the splits
        ["train/cat", "train/dog", "test/cat", "seg_pred/seg_pred", "unlabeled/more"],
    ],
)
def test_splits_are_found_by_words_and_at_other_depths(parts: list[str], tmp_path: Path) -> None:
    fill(tmp_path, *parts, each=30)
    found = load(tmp_path)
    assert {images.class_names for images in found.values()} == {("cat", "dog")}
    assert len(found["test"]) == 30 * sum("test" in part or "eval" in part for part in parts)
    expected = {"dog" in part for part in parts if "test" in part or "eval" in part}
    assert {bool(label) for label in labels(found["test"])} == expected
    held = sum(len(found[split]) for split in ("train", "validation"))
    assert held == 30 * sum("train" in part.lower() or "dev" in part for part in parts)


def test_images_without_a_class_are_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, "train/cat", "train/dog", each=20)
    fill(tmp_path, "test", "seg_pred/seg_pred", each=3)
    found = load(tmp_path)
    assert sum(map(len, found.values())) == 40, "the test images are some of train"
    assert "3 images without a class left out: seg_pred/" in caplog.text
    assert "3 images without a class left out: test/000.png" in caplog.text


def test_names_of_files_tell_the_splits_where_all_do(tmp_path: Path) -> None:
    for split, each in (("train", 6), ("val", 3), ("test", 2)):
        fill(tmp_path, split, each=each)
        for path in (tmp_path / split).iterdir():
            path.rename(tmp_path / f"{split}_{path.name}")
        (tmp_path / split).rmdir()
    assert [len(images) for images in load(tmp_path).values()] == [6, 3, 2]
    write_images(tmp_path, 1, (4, 4, 3), seed=9)  # a name that tells none
    assert len(source(tmp_path).load("all")) == 12
    assert len(load(tmp_path)["validation"]) < 12


@pytest.mark.parametrize(
    "parts", [["bullet train", "test tube", "bus"], ["steam train", "bullet train"]]
)
def test_words_of_classes_are_no_splits(parts: list[str], tmp_path: Path) -> None:
    fill(tmp_path, *parts, each=4)
    assert source(tmp_path).load("train").class_names == tuple(sorted(parts))


def test_capitals_and_folders_without_images_change_nothing(tmp_path: Path) -> None:
    fill(tmp_path, "Train/cat", "Val/cat", "TEST/cat", each=5)
    (tmp_path / "notes").mkdir()
    for folder in (tmp_path / "__MACOSX", tmp_path):  # what some zip programs leave
        write_images(folder, 1, (4, 4, 3))
        (folder / "000.png").rename(folder / "._000.png")
    found = load(tmp_path)
    assert [len(images) for images in found.values()] == [5, 5, 5]
    assert found["test"].class_names == ("cat",)
