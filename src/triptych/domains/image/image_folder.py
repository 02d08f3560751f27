"""Folders of image files: classes by sub-folder, splits by sub-folder or by hash of the content."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.image.data import ImageDataset
from triptych.domains.image.formats import ImageSizeError, check_size, decode_image
from triptych.domains.sources import ALL, split_by_hash
from triptych.errors import UserError

_LOG = logging.getLogger(__name__)

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
    """Image files with their classes."""

    files: list[tuple[Path, int]]
    """Path relative to the folder, and class index (0 without classes)."""
    class_names: tuple[str, ...]
    """Sub-folders in alphabetical order; empty without classes."""
    hashed_splits: frozenset[str] = frozenset()
    """Splits that are taken from these files by hash, as they have no folder."""


def find_images(directory: Path) -> Iterator[Path]:
    """Yield the image files at any depth, relative to the folder, without hidden ones."""
    for path in directory.rglob("*"):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            name = path.relative_to(directory)
            if not any(part[0] == "." for part in name.parts):
                yield name


def list_images(directory: Path) -> Listing:
    """Return all images below a folder, sorted by name; the class is the first sub-folder.

    Raises UserError for a folder without images and where some images are in sub-folders and some
    are not.
    """
    if not directory.is_dir():
        raise UserError(f"the image folder {directory} does not exist or is not a folder")
    found = sorted(find_images(directory))
    if not found:
        raise UserError(f"{directory} holds no images (looked for {', '.join(SUFFIXES)})")
    loose = [path for path in found if len(path.parts) == 1]
    if loose and len(loose) < len(found):
        raise UserError(
            f"{directory} has {len(loose)} images directly (such as {loose[0]}) and "
            f"{len(found) - len(loose)} in sub-folders: a sub-folder is a class, so put all "
            "images into sub-folders or none"
        )
    if loose:
        return Listing([(path, 0) for path in found], ())
    names = tuple(sorted({path.parts[0] for path in found}))
    return Listing([(path, names.index(path.parts[0])) for path in found], names)


def split_folders(directory: Path) -> dict[str, Path]:
    """Return the folder of each split; empty where the sub-folders are classes.

    The sub-folders are splits where one is named train and another one after a split too, in any
    case of letters; folders without images do not count. Raises UserError where two folders are
    of one split, and where classes or images are next to folders of splits.
    """
    if not directory.is_dir():
        return {}
    names = sorted(p.name for p in directory.iterdir() if p.is_dir() and p.name[0] != ".")
    folders = [name for name in names if name.lower() in SPLIT_FOLDERS]
    splits = {SPLIT_FOLDERS[name.lower()] for name in folders}
    if "train" not in splits:
        return {}
    others = [name for name in names if name not in folders and any(find_images(directory / name))]
    if others and splits == {"train"}:
        return {}
    if others:
        raise UserError(
            f"{directory} has the split folders {' and '.join(folders)} and also {others[0]}; "
            "expected either splits (train, validation, test) or classes"
        )
    found: dict[str, Path] = {}
    for name in folders:
        split = SPLIT_FOLDERS[name.lower()]
        if split in found:
            raise UserError(
                f"{directory} has two folders for {split}: {found[split].name} and {name}; "
                "expected one"
            )
        found[split] = directory / name
    loose = [p.name for p in directory.iterdir() if p.suffix.lower() in SUFFIXES]
    if loose := [name for name in loose if name[0] != "."]:
        raise UserError(
            f"{directory} has the split folders {' and '.join(folders)} and images next to them "
            f"(such as {min(loose)}); expected all images in these folders"
        )
    return found


def list_split(directory: Path, split: str) -> Listing:
    """Return the images that may belong to a split: train, validation, test or all.

    Raises UserError as `list_images` does, and for a class that the training folder lacks.
    """
    folders = split_folders(directory)
    if not folders:
        every = list_images(directory)
        return Listing(every.files, every.class_names, frozenset({"validation", "test"}))
    if split == ALL:
        parts = [list_split(directory, name) for name in sorted(folders)]
        return Listing([file for part in parts for file in part.files], parts[0].class_names)
    hashed = frozenset({"validation", "test"} - set(folders))
    folder = folders["train" if split in hashed else split]
    names, own = list_images(folders["train"]).class_names, list_images(folder)
    unknown = sorted(set(own.class_names) - set(names))
    if unknown or (names and not own.class_names):
        found = f"the class {unknown[0]}, which" if unknown else "images without a class, which"
        raise UserError(f"{folder} has {found} {folders['train']} does not have")
    index = [names.index(name) for name in own.class_names] or [0]
    files = [(Path(folder.name) / path, index[label]) for path, label in own.files]
    return Listing(files, names, hashed)


def read_folder(
    directory: Path,
    split: str,
    *,
    height: int,
    width: int,
    channels: int,
    resize: bool,
    shares: dict[str, float],
) -> ImageDataset:
    """Read the images of one split, or of `all`, in the order of the hashes of their files.

    height, width in pixels. shares: of validation and test, where they have no folder. Damaged
    images are skipped and reported in one warning. Images of other splits are not decoded, only
    their size is checked. Raises UserError for an image of another size unless `resize`, and where
    no image remains.
    """
    listing = list_split(directory, split)
    hashed = {name: share for name, share in shares.items() if name in listing.hashed_splits}
    whole = split != "train" and split not in listing.hashed_splits
    kept: list[tuple[bytes, int, NDArray[np.uint8]]] = []
    skipped: list[str] = []
    for relative, label in listing.files:
        try:
            content = (directory / relative).read_bytes()
            if whole or split_by_hash(content, hashed) == split:
                pixels = decode_image(
                    content, height=height, width=width, channels=channels, resize=resize
                )
                kept.append((hashlib.sha256(content).digest(), label, pixels))
            elif not resize:
                check_size(content, height=height, width=width)
        except ImageSizeError as error:
            raise UserError(
                f"{directory / relative} is {error} (pixels), expected {width} wide and {height} "
                "high: set data.source.init_args.resize to true to crop and scale all images, "
                "or change height and width"
            ) from error
        # Pillow raises a dozen types of exception for damaged files.
        except Exception:
            skipped.append(str(relative))
    if skipped:
        shown = ", ".join(skipped[:5]) + (", ..." if len(skipped) > 5 else "")
        _LOG.warning(
            "%s: skipped %d of %d images that cannot be decoded: %s",
            directory, len(skipped), len(listing.files), shown,
        )  # fmt: skip
    if not kept and whole:
        raise UserError(f"none of the {len(listing.files)} images in {directory} can be decoded")
    if not kept:
        raise UserError(
            f"no image of {directory} belongs to the split {split!r}: of {len(listing.files)} "
            f"files {len(skipped)} cannot be decoded, and the split takes images by the hash of "
            f"their content ({', '.join(f'{n} {share:g}' for n, share in hashed.items())} of all); "
            "provide more images or larger shares"
        )
    kept.sort(key=lambda image: image[:2])  # independent of file names and mixed over the classes
    labels = torch.tensor([label for _, label, _ in kept]) if listing.class_names else None
    pixels = np.stack([pixels for *_, pixels in kept])  # [N, H, W, C]
    return ImageDataset(torch.from_numpy(pixels), labels, 256, listing.class_names)
