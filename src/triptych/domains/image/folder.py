"""Read a user's folder of images: classes by sub-folder, splits by content, integers only."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from triptych.domains.image.image_file import ImageSizeError, check_header, decode_image
from triptych.errors import UserError
from triptych.training.held_out import ALL, split_by_hash

_LOG = logging.getLogger(__name__)

SUFFIXES = (
    ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip


@dataclass(frozen=True)
class FolderImages:
    """What a folder held of one split."""

    pixels: np.ndarray
    """uint8 [N, H, W, C]"""
    labels: np.ndarray | None
    """int64 [N], or None where no sub-folder names a class"""
    class_names: tuple[str, ...]
    """the sub-folders in alphabetical order"""


SPLIT_FOLDERS = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
}
"""Names of folders that hold a split rather than a class, and which."""


def split_folders(directory: Path) -> dict[str, Path]:
    """The folder of each split where all folders in `directory` are splits, train among them.

    Capitals do not matter; folders without images are passed over. Empty where there is no train
    or nothing beside it but classes. Raises UserError where two folders are of one split, or
    classes or images lie beside train and another split.
    """
    if not directory.is_dir():
        return {}
    names = sorted(p.name for p in directory.iterdir() if p.is_dir() and p.name[0] != ".")
    splits = [name for name in names if name.lower() in SPLIT_FOLDERS]
    kinds = {SPLIT_FOLDERS[name.lower()] for name in splits}
    if "train" not in kinds:
        return {}
    # Images are looked for in folders of other names alone, and no further than to the first.
    others = [name for name in names if name not in splits and any(image_files(directory / name))]
    if others and kinds == {"train"}:
        return {}
    if others:
        raise UserError(
            f"{directory} has the folders {' and '.join(splits)}, which are splits, and beside "
            f"them {others[0]}; expected nothing but splits (train, validation, test) or nothing "
            "but classes"
        )
    found: dict[str, Path] = {}
    for name in splits:
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
            f"{directory} has the folders {' and '.join(splits)} and images beside them (such as "
            f"{min(loose)}); expected all images in these folders"
        )
    return found


def files_of_split(
    directory: Path, split: str
) -> tuple[list[tuple[Path, int]], tuple[str, ...], frozenset[str]]:
    """The files that may be of a split with their classes, the class names, and the splits that
    are taken out of these files by hash: none where each split has a folder.

    split: train, validation, test, or all for every file there is.
    Raises UserError as `list_images` does, and for classes that training does not have.
    """
    folders = split_folders(directory)
    if not folders:
        return *list_images(directory), frozenset({"validation", "test"})
    if split == ALL:
        parts = [files_of_split(directory, name) for name in sorted(folders)]
        return [file for files, *_ in parts for file in files], parts[0][1], frozenset()
    by_hash = frozenset({"validation", "test"} - set(folders))
    folder = folders["train" if split in by_hash else split]
    names = list_images(folders["train"])[1]
    files, own = list_images(folder)
    unknown = sorted(set(own) - set(names))
    if unknown or (names and not own):
        found = f"the class {unknown[0]}, which" if unknown else "images without a class, which"
        raise UserError(f"{folder} has {found} {folders['train']} does not have")
    number = [names.index(name) for name in own] or [0]
    return [(Path(folder.name) / path, number[label]) for path, label in files], names, by_hash


def list_images(directory: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """All image files below directory with their class, sorted by name, and the class names.

    Images beside each other have no class (index 0, no names); images in sub-folders have
    the first sub-folder's. Hidden files are passed over. Raises UserError where there is no
    image, or where some lie in sub-folders and some do not.
    """
    if not directory.is_dir():
        raise UserError(f"the image folder {directory} does not exist or is not a folder")
    found = sorted(image_files(directory))
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
        return [(path, 0) for path in found], ()
    names = tuple(sorted({path.parts[0] for path in found}))
    return [(path, names.index(path.parts[0])) for path in found], names


def image_files(directory: Path) -> Iterator[Path]:
    """The names of the image files at any depth, relative to the folder, hidden ones apart."""
    for path in directory.rglob("*"):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            name = path.relative_to(directory)
            if not any(part[0] == "." for part in name.parts):
                yield name


def split_of(content: bytes, validation: float, test: float) -> str:
    """The split of a file by the hash of its bytes, whatever its name and its neighbours.

    So equal files never lie in two splits, and a new image moves no other one.
    """
    return split_by_hash(content, {"validation": validation, "test": test})


def read_folder(
    directory: Path,
    split: str,
    *,
    height: int,
    width: int,
    channels: int,
    resize: bool,
    validation: float,
    test: float,
) -> FolderImages:
    """Read the images of one split, or of `all`; a corrupt one is skipped, counted and named.

    Only these are decoded; of the others the size is looked at.

    Raises UserError where a image has another size and resize is False, or none is left.
    """
    files, class_names, by_hash = files_of_split(directory, split)
    validation = validation if "validation" in by_hash else 0.0
    test = test if "test" in by_hash else 0.0
    alone = split != "train" and split not in by_hash
    kept: list[tuple[bytes, int, np.ndarray]] = []
    skipped: list[str] = []
    for relative, label in files:
        try:
            content = (directory / relative).read_bytes()
            wanted = alone or split_of(content, validation, test) == split
            if wanted:
                pixels = decode_image(
                    content, height=height, width=width, channels=channels, resize=resize
                )
            elif not resize:  # told now, and not when the other split is asked for
                check_header(content, height=height, width=width)
        except ImageSizeError as error:
            raise UserError(
                f"{directory / relative} is {error} (pixels), expected {width} wide and {height} "
                "high: set data.source.init_args.resize to true to crop and scale all images, "
                "or change height and width"
            ) from error
        # Damaged files raise a dozen different exceptions; each costs one image, never the run.
        except Exception:
            skipped.append(str(relative))
            continue
        if wanted:
            kept.append((hashlib.sha256(content).digest(), label, pixels))
    if skipped:
        shown = ", ".join(skipped[:5]) + (", ..." if len(skipped) > 5 else "")
        _LOG.warning(
            "%s: skipped %d of %d images that cannot be decoded: %s",
            directory, len(skipped), len(files), shown,
        )  # fmt: skip
    if not kept:
        if alone:
            raise UserError(f"none of the {len(files)} images in {directory} can be decoded")
        raise UserError(
            f"no image of {directory} falls into the split {split!r}: of {len(files)} files "
            f"{len(skipped)} cannot be decoded, and the split takes a image by the hash of its "
            f"content (validation {validation:g}, test {test:g} of all); give more images or "
            "larger fractions"
        )
    # By content, not by name: the first so many are then of all classes.
    kept.sort(key=lambda image: image[:2])
    return FolderImages(
        pixels=np.stack([pixels for *_, pixels in kept]),  # [N, H, W, C]
        labels=np.asarray([label for _, label, _ in kept], dtype=np.int64) if class_names else None,
        class_names=class_names,
    )
