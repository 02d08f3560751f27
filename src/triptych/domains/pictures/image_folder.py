"""Lists the image files of a folder: splits and classes by sub-folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from triptych.errors import UserError
from triptych.files.splits import ALL

SUFFIXES = (
    ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip
SPLIT_FOLDERS = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
}
"""Folder name in lower case -> split."""


@dataclass(frozen=True)
class Listing:
    """Image files that may belong to a split, with their classes."""

    files: list[tuple[Path, int]]
    """Path relative to the folder, and class index (0 without classes)."""
    class_names: tuple[str, ...]
    """Sub-folders of the training images in alphabetical order; empty without classes."""
    hashed_splits: frozenset[str]
    """Splits without a folder, which take training images by hash."""


def find_images(directory: Path) -> Iterator[Path]:
    """Yield the image files at any depth, relative to the folder, without hidden ones."""
    for path in directory.rglob("*"):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            name = path.relative_to(directory)
            if not any(part[0] == "." for part in name.parts):
                yield name


def split_folders(directory: Path, paths: list[Path]) -> dict[str, str]:
    """Return the name of each split's folder; empty where the sub-folders are classes.

    paths: of all images, relative to the folder. The sub-folders are splits where one is named
    train and another one after a split too, in any case of letters. Raises UserError where two
    folders are of one split, and where classes or images are next to folders of splits.
    """
    names = sorted({path.parts[0] for path in paths})
    others = [name for name in names if name.lower() not in SPLIT_FOLDERS]
    folders = [name for name in names if name.lower() in SPLIT_FOLDERS]
    name_of = {SPLIT_FOLDERS[name.lower()]: name for name in folders}
    if "train" not in name_of or (others and len(name_of) == 1):
        return {}
    if others or len(name_of) < len(folders):
        raise UserError(
            f"{directory} has the split folders {', '.join(folders)}"
            f"{f' and also {others[0]}' if others else ''}; expected one folder for each split "
            "(train, validation, test) with all images in them, or folders of classes only"
        )
    return name_of


def list_split(directory: Path, split: str) -> Listing:
    """Return the images that may belong to a split (train, validation, test or all) by name.

    The class is the first sub-folder. Raises UserError for a folder without images, for images
    next to folders of classes, and for a class that the training images lack.
    """
    paths = sorted(find_images(directory))
    if not paths:
        raise UserError(
            f"{directory} does not exist or holds no images (looked for {', '.join(SUFFIXES)})"
        )
    folders = split_folders(directory, paths)
    depth = 1 if folders else 0  # folders above those of the classes
    parts = {"train": paths}
    if folders:
        parts = {s: [p for p in paths if p.parts[0] == name] for s, name in folders.items()}

    def class_of(path: Path) -> str:
        return path.parts[depth] if len(path.parts) > depth + 1 else ""

    classes = {class_of(path) for path in parts["train"]}
    if "" in classes and len(classes) > 1:
        loose = next(path for path in parts["train"] if not class_of(path))
        raise UserError(
            f"{directory} has images in sub-folders and images next to these (such as {loose}): a "
            "sub-folder is a class, so put all images into sub-folders or none"
        )
    class_names = tuple(sorted(classes - {""}))
    hashed = frozenset({"validation", "test"} - set(parts))
    chosen = paths if split == ALL else parts["train" if split in hashed else split]
    files = []
    for path in chosen:
        name = class_of(path)
        if name not in classes:
            raise UserError(
                f"{directory / path} has {f'the class {name}' if name else 'no class'}, which the "
                "training images do not have"
            )
        files.append((path, class_names.index(name) if name else 0))
    return Listing(files, class_names, hashed)
