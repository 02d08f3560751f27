"""A folder of image files as a source: splits and classes by sub-folder."""

import hashlib
import re
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from triptych.domains.options import counted
from triptych.domains.pictures.data import ImageDataset, concatenate
from triptych.domains.pictures.decode import (
    DARK,
    Pixels,
    ValueRangeError,
    decode_pages,
    image_suffixes,
    notes_about,
    why_unreadable,
)
from triptych.domains.pictures.options import Reading
from triptych.domains.pictures.sources import ImageSource
from triptych.errors import UserError
from triptych.files.folders import endings, named, visible_files, warn_once
from triptych.files.reading import read_in_order
from triptych.files.splits import (
    ALL,
    SPLIT_WORDS,
    check_shares,
    split_by_hash,
    split_in_name,
    warn_of_skipped,
)
from triptych.types import FractionBelowOne, PositiveInt

CHUNK = 1024
"""Images that a stream yields at a time."""
UNLABELLED = "unlabelled"
UNLABELLED_WORDS = ("pred", "predict", "unlabeled", UNLABELLED)
"""Words in names of folders of images without classes, which belong to no split."""


@dataclass(frozen=True)
class Listing:
    """Image files that may belong to a split, with their classes."""

    files: list[tuple[Path, int]]
    """Path relative to the folder, and class index (0 without classes)."""
    class_names: tuple[str, ...]
    """Sub-folders of the training images in alphabetical order; empty without classes."""
    hashed_splits: frozenset[str]
    """Splits without images of their own, which take training images by hash."""
    left_out: tuple[str, ...]
    """Sentences about files that are left out."""


def find_images(directory: Path) -> tuple[list[Path], list[Path]]:
    """Return the image files at any depth by name, and all others; relative to the folder."""
    images: list[Path] = []
    others: list[Path] = []
    for path in visible_files(directory):
        is_image = path.suffix.lower() in image_suffixes()
        (images if is_image else others).append(path.relative_to(directory))
    return images, others


def _split_of(name: str) -> str | None:
    """Return the split that a word of a name tells, or `UNLABELLED`; None for none or two."""
    words = {*re.split(r"[^a-z]+", name.lower())}
    with suppress(UserError):
        return split_in_name(name) or (UNLABELLED if words & {*UNLABELLED_WORDS} else None)
    return None


def splits_by_name(directory: Path, names: Collection[str], loose: list[Path]) -> dict[str, str]:
    """Return the split of each folder's name; empty where the folders are not splits.

    They are where one is of train and another one of another split, or there is nothing else. A
    word of the name tells it where all names have one, else the whole name. loose: images beside
    the folders. Raises UserError where two folders are of one split, and where splits and others
    are mixed.
    """
    found = {name: split for name in names if (split := _split_of(name))}
    if len(found) < len(names):
        found = {name: split for name, split in found.items() if name.lower() in SPLIT_WORDS}
    others = [*sorted({*names} - found.keys()), *map(str, loose)]
    splits = [split for split in found.values() if split != UNLABELLED]
    if "train" not in splits or ({*splits} == {"train"} and (others or len(splits) > 1)):
        return {}
    if others or len(splits) > len({*splits}):
        raise UserError(
            f"{directory} has the split folders {', '.join(sorted(found))}"
            f"{f' and also {others[0]}' if others else ''}; expected one folder for each split "
            "(train, validation, test) with all images in them, or folders of classes only: move "
            "or rename the others"
        )
    return found


def by_split(directory: Path, paths: list[Path]) -> dict[str, dict[Path, str]]:
    """Return for each split its images and their classes, "" for none; all in train without splits.

    paths: relative to the folder. A folder of a split lies above those of the classes or in each of
    them, or the name of every file tells its split. Folders around all others tell nothing. Raises
    UserError as `splits_by_name`.
    """
    folders = _unwrapped({path: path.parent.parts for path in paths})
    split_of = {path: _split_of(path.stem) for path in paths}
    if None in split_of.values() or not {"train"} < {*split_of.values()} - {UNLABELLED}:
        split_of = dict.fromkeys(paths, "train")
    for level in (0, 1):
        at = {path: parts[level] for path, parts in folders.items() if len(parts) > level}
        loose = [path for path in paths if path not in at]
        if splits := splits_by_name(directory, {*at.values()}, loose):
            split_of = {path: splits[name] for path, name in at.items()}
            folders = {path: (*p[:level], *p[level + 1 :]) for path, p in folders.items()}
            break
    placed: dict[str, dict[Path, str]] = {}
    for split in sorted({*filter(None, split_of.values())}):
        own = {path: folders[path] for path, name in split_of.items() if name == split}
        placed[split] = {path: "".join(p[:1]) for path, p in _unwrapped(own, split).items()}
    return placed


def _unwrapped(
    folders: dict[Path, tuple[str, ...]], split: str = ""
) -> dict[Path, tuple[str, ...]]:
    """Return the folders of images without those that all lie in and that are not their own.

    split: of all images; a folder named after it is not their own.
    """
    while len(first := {parts[:1] for parts in folders.values()}) == 1 and first != {()}:
        named_so = _split_of(*first.pop()) == split
        if not named_so and not all(len(parts) > 1 for parts in folders.values()):
            break
        folders = {path: parts[1:] for path, parts in folders.items()}
    return folders


def list_split(directory: Path, split: str) -> Listing:
    """Return the images that may belong to a split (train, validation, test or all) by name.

    The class is the first sub-folder. Images without a class are left out of splits whose training
    images have one. Raises UserError for a folder without images, for training images next to
    folders of classes, for a class that the training images lack, and as `splits_by_name`.
    """
    paths, others = find_images(directory)
    if not paths:
        there = f"holds no images, but {endings(others)}" if others else "holds no images"
        raise UserError(f"{directory} {there if directory.is_dir() else 'does not exist'}")
    parts = by_split(directory, paths)
    classes = {*parts["train"].values()}
    if "" in classes and len(classes) > 1:
        loose = next(path for path, name in parts["train"].items() if not name)
        raise UserError(
            f"{directory} has images in sub-folders and images next to these (such as {loose}): a "
            "sub-folder is a class, so put all images into sub-folders or none"
        )
    some = counted(len(others), "other file", "other files")
    left_out = [f"{some} left out: {endings(others)}"] if others else []
    for name, own in sorted(parts.items()):
        without = [
            path for path, of in own.items() if name == UNLABELLED or of == "" not in classes
        ]
        if without:
            some = counted(len(without), "image", "images")
            left_out.append(f"{some} without a class left out: {named([*map(str, without)])}")
            parts[name] = {path: of for path, of in own.items() if path not in {*without}}
    parts = {name: own for name, own in parts.items() if own}
    class_names = tuple(sorted(classes - {""}))
    hashed = frozenset({"validation", "test"} - set(parts))
    chosen = [*parts] if split == ALL else ["train" if split in hashed else split]
    files = []
    for path, name in sorted(pair for part in chosen for pair in parts[part].items()):
        if name not in classes:
            raise UserError(
                f"{directory / path} has the class {name}, which the training images do not have"
            )
        files.append((path, class_names.index(name) if name else 0))
    return Listing(files, class_names, hashed, tuple(left_out))


@dataclass(frozen=True)
class ImageFolder(ImageSource):
    """A folder of images of every format that Pillow reads; sub-folders are classes.

    Sub-folders named train, validation (or valid, val, dev) and test are splits, with classes below
    them. A split without such a folder is taken from the training images by the hash of each file:
    equal files are never in two of these splits, and a new file does not move others. Each page of
    a TIFF is an image, and the first frame of an animation. Links are followed. Files that are no
    images, and damaged ones, are left out and named.
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
    background: str = "white"
    """Colour below transparent pixels: a name such as black, or as #8090a0."""
    value_range: tuple[float, float] | None = None
    """Values that become 0 and 255 where images have more than 8 bits, whole numbers or not; null
    refuses such images."""
    validation_share: FractionBelowOne = 0.1
    """Share of the images held out for validation, 0 to 1."""
    test_share: FractionBelowOne = 0.1
    """Share of the images held out for the test, 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.validation_share, self.test_share)
        Reading(self.background, self.value_range)  # checks both

    @property
    def reading(self) -> Reading:
        return Reading(self.background, self.value_range)

    def load(self, split: str) -> ImageDataset:
        """Read one split, or `all`, in the order of the hashes of its files."""
        return concatenate(list(self.stream(split)))

    def stream(self, split: str) -> Iterator[ImageDataset]:
        """Yield the images of `load` in parts; each file is read twice, hashed and then decoded."""
        listing = list_split(self._folder, split)
        for sentence in listing.left_out:
            warn_once(f"{self._folder}: {sentence}")
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
        notes: dict[str, set[str]] = {}
        with closing(
            read_in_order(self._decode, names, count=len(names), what="decoded images")
        ) as decoded:

            def pairs() -> Iterator[tuple[Pixels, int]]:
                for result, (_, label, path) in zip(decoded, images, strict=True):
                    if isinstance(result, str):
                        damaged.append(result)
                        continue
                    notes[str(path)] = result[1]
                    yield from ((pixels, label) for pixels in result[0])

            good, brightest = pairs(), 0
            while some := list(islice(good, CHUNK)):
                n_found += len(some)
                pixels = torch.from_numpy(np.stack([one for one, _ in some]))  # [N, H, W, C]
                brightest = max(brightest, int(pixels.max()))
                labels = torch.tensor([label for _, label in some])
                classes = labels if listing.class_names else None
                yield ImageDataset(pixels, classes, 256, listing.class_names, self.reading)
        warn_of_skipped(self._folder, sorted(damaged), len(listing.files))
        for sentence in notes_about(notes, self.reading):
            warn_once(f"{self._folder}, {split}: {sentence}")
        if not n_found:
            raise UserError(
                f"no image of {self._folder} belongs to the split {split!r} and can be read: of "
                f"{len(listing.files)} files {len(damaged)} cannot be read, and a split without a "
                "folder takes its share of the images by the hash of their content"
            )
        if brightest < DARK:
            warn_once(f"{self._folder}, {split}: no value is above {brightest} of 255")

    @property
    def _folder(self) -> Path:
        return Path(self.directory).expanduser()

    def _digest(
        self, path: Path, *, split: str, hashed: dict[str, float] | None
    ) -> bytes | str | None:
        """Return the hash of a file; None for one of another split, and why one is unreadable.

        hashed: shares of the splits by hash; None where the hash decides nothing.
        """
        try:
            content = (self._folder / path).read_bytes()
        except OSError as error:
            return f"{path} ({why_unreadable(error)})"
        if hashed is not None and split_by_hash(content, hashed) != split:
            return None
        return hashlib.sha256(content).digest()

    def _decode(self, path: Path) -> tuple[list[Pixels], set[str]] | str:
        """Return the images of a file with keys of `NOTES`, or why it is left out."""
        notes: set[str] = set()
        size = self.height, self.width
        try:
            content = (self._folder / path).read_bytes()
            fitted = size if self.resize else None
            pages = decode_pages(
                content, self.channels, size=fitted, reading=self.reading, notes=notes
            )
            images = [*pages]
        except ValueRangeError as error:
            raise UserError(
                f"{self._folder / path} has {error}: set "
                "data.source.init_args.value_range to the range of all images, such as "
                f"{error.suggested()}; triptych new-run finds it"
            ) from error
        # Pillow raises a dozen types of exception for damaged files.
        except Exception as error:
            return f"{path} ({why_unreadable(error)})"
        for height, width, _ in (pixels.shape for pixels in images):
            if (height, width) != size:
                raise UserError(
                    f"{self._folder / path} is {width} wide and {height} high (pixels), expected "
                    f"{self.width} wide and {self.height} high: set data.source.init_args.resize "
                    "to true to crop and scale all images, or change height and width"
                )
        return images, notes
