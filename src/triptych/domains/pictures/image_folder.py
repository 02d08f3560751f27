"""A folder of image files as a source: splits and classes by sub-folder."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.pictures.data import ImageDataset, concatenate
from triptych.domains.pictures.sources import CHUNK, ImageSource, Pixels
from triptych.errors import UserError
from triptych.files.reading import read_in_order
from triptych.files.splits import ALL, check_shares, split_by_hash, warn_of_skipped
from triptych.types import FractionBelowOne, PositiveInt

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


class ImageSizeError(ValueError):
    """An image that is not of the expected height and width (pixels)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__(f"{width} wide and {height} high")


def decode_image(
    content: bytes, height: int, width: int, channels: int, *, resize: bool
) -> NDArray[np.uint8]:
    """Decode an image file: uint8 [height, width, channels].

    Applies the camera's orientation, lays transparency over white, and shifts 16-bit grey to 8
    bits; torchvision.io has none of these. Raises ImageSizeError for another size unless `resize`,
    and the exceptions of Pillow for a damaged file.
    """
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as opened:
        opened.load()  # finds a truncated file
        image: Image.Image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's conversion would clip at 255
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    if (image.height, image.width) != (height, width):
        if not resize:
            raise ImageSizeError(image.height, image.width)
        image = ImageOps.fit(image, (width, height), Image.Resampling.LANCZOS)
    return np.asarray(image, dtype=np.uint8).reshape(height, width, channels)


@dataclass(frozen=True)
class ImageFolder(ImageSource):
    """A folder of PNG, JPEG, BMP, GIF, TIFF, WebP or PPM images; sub-folders are classes.

    Sub-folders named train, validation (or valid, val) and test are splits, with classes below
    them. A split without such a folder is taken from the training images by the hash of each file:
    equal files are never in two of these splits, and a new file does not move others. Damaged
    images are skipped and reported.
    """

    directory: str
    """Folder of the images; its sub-folders are classes, or train, validation and test."""
    height: PositiveInt
    """Height of every image, in pixels."""
    width: PositiveInt
    """Width of every image, in pixels."""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for RGB; images are converted."""
    resize: bool = False
    """Crop and scale images of another size; false refuses them."""
    validation_share: FractionBelowOne = 0.1
    """Share of the images held out for validation, 0 to 1."""
    test_share: FractionBelowOne = 0.1
    """Share of the images held out for the test, 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.validation_share, self.test_share)

    def load(self, split: str) -> ImageDataset:
        """Read one split, or `all`, in the order of the hashes of its files."""
        return concatenate(list(self.stream(split)))

    def load_all(self) -> ImageDataset:
        return self.load(ALL)

    def stream(self, split: str) -> Iterator[ImageDataset]:
        """Yield the images of `load` in parts; each file is read twice, hashed and then decoded."""
        listing = list_split(self._folder, split)
        shares = {"validation": self.validation_share, "test": self.test_share}
        hashed = {name: shares[name] for name in shares if name in listing.hashed_splits}
        by_hash = hashed if split == "train" or split in hashed else None
        digest = partial(self._digest, split=split, hashed=by_hash)
        names = [path for path, _ in listing.files]
        with closing(read_in_order(digest, names, count=len(names), what="hashed images")) as keys:
            found = list(zip(keys, listing.files, strict=True))
        damaged = [key for key, _ in found if isinstance(key, str)]
        # By the hash: independent of names, mixed over the classes.
        images = sorted((key, *file[::-1]) for key, file in found if isinstance(key, bytes))
        names, n_found = [path for *_, path in images], 0
        with closing(
            read_in_order(self._decode, names, count=len(names), what="decoded images")
        ) as decoded:
            pairs = zip(decoded, (label for _, label, _ in images), strict=True)
            while some := list(islice(pairs, CHUNK)):
                damaged += [pixels for pixels, _ in some if isinstance(pixels, str)]
                good = [(pixels, label) for pixels, label in some if not isinstance(pixels, str)]
                if good:
                    n_found += len(good)
                    pixels = torch.from_numpy(np.stack([one for one, _ in good]))  # [N, H, W, C]
                    labels = torch.tensor([label for _, label in good])
                    classes = labels if listing.class_names else None
                    yield ImageDataset(pixels, classes, 256, listing.class_names)
        warn_of_skipped(self._folder, sorted(damaged), len(listing.files))
        if not n_found:
            raise UserError(
                f"no image of {self._folder} belongs to the split {split!r} and can be decoded: of "
                f"{len(listing.files)} files {len(damaged)} are damaged, and a split without a "
                "folder takes its share of the images by the hash of their content"
            )

    @property
    def _folder(self) -> Path:
        return Path(self.directory).expanduser()

    def _digest(
        self, path: Path, *, split: str, hashed: dict[str, float] | None
    ) -> bytes | str | None:
        """Return the hash of a file; None for one of another split, its name where unreadable.

        hashed: shares of the splits by hash; None where the hash decides nothing.
        """
        try:
            content = (self._folder / path).read_bytes()
        except OSError:
            return str(path)
        if hashed is not None and split_by_hash(content, hashed) != split:
            return None
        return hashlib.sha256(content).digest()

    def _decode(self, path: Path) -> Pixels | str:
        """Return the pixels of a file, or the name of a damaged one; UserError for another size."""
        try:
            content = (self._folder / path).read_bytes()
            return decode_image(content, self.height, self.width, self.channels, resize=self.resize)
        except ImageSizeError as error:
            raise UserError(
                f"{self._folder / path} is {error} (pixels), expected {self.width} wide and "
                f"{self.height} high: set data.source.init_args.resize to true to crop and "
                "scale all images, or change height and width"
            ) from error
        # Pillow raises a dozen types of exception for damaged files.
        except Exception:
            return str(path)
