"""Sources of images: digits of scikit-learn, MNIST, CIFAR-10 and folders of image files.

Every source returns the integers of its files; nothing between file and loss is a float. A source
of your own is a frozen dataclass that inherits from `ImageSource`, named in the YAML by its class
path.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.pictures.data import SPLITS, ImageDataset, permutation
from triptych.domains.pictures.formats import (
    ImageSizeError,
    decode_image,
    find_plain_or_compressed,
    read_cifar_batch,
    read_idx,
)
from triptych.domains.pictures.image_folder import Listing, list_split
from triptych.errors import UserError
from triptych.files.reading import read_in_order
from triptych.files.splits import ALL, check_shares, split_by_hash, warn_of_skipped
from triptych.types import Checked, FractionBelowOne, PositiveInt, Seed

CHUNK = 1024
"""Images that a stream yields at a time."""
Pixels = NDArray[np.uint8]
DIGITS = tuple(str(digit) for digit in range(10))
Arrays = tuple[Pixels, NDArray[np.integer]]
"""Pixels [N, H, W, C] and class indices [N]."""


class _Found(NamedTuple):
    """Image of a folder."""

    digest: bytes
    label: int
    path: Path
    pixels: Pixels


class ImageSource(Checked, ABC):
    """A dataset of images of one size; subclasses are frozen dataclasses."""

    @abstractmethod
    def load(self, split: str) -> ImageDataset:
        """Read train, validation or test. Raises UserError for missing or damaged files."""

    def stream(self, split: str) -> Iterator[ImageDataset]:
        """Yield the images of `load` in parts, one after the other.

        A source overrides it if it need not hold all images in memory.
        """
        images = self.load(split)
        for some in torch.arange(len(images)).split(CHUNK):
            yield images.select(some)

    def load_all(self) -> ImageDataset:
        """Read the images of all splits."""
        parts = [self.load(split) for split in SPLITS]
        labels = [part.labels for part in parts if part.labels is not None]
        return replace(
            parts[0],
            pixels=torch.cat([part.pixels for part in parts]),  # [N, H, W, C]
            labels=torch.cat(labels) if labels else None,
        )


@dataclass(frozen=True)
class Digits(ImageSource):
    """1,797 handwritten digits, 8x8, grey with 17 levels, from the package scikit-learn.

    Split by seed into 1,437 training, 180 validation and 180 test images.
    """

    seed: Seed = 0
    """Seed that decides which images are held out."""

    def load(self, split: str) -> ImageDataset:
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise UserError(
                "the digits come with scikit-learn, which is not installed: "
                'pip install "triptych[demo]"'
            ) from error
        content = load_digits()
        # scikit-learn returns the integers 0 to 16 as float64; the conversion is exact.
        pixels = torch.from_numpy(content.images.astype(np.uint8)).unsqueeze(-1)  # [N, H, W, 1]
        labels = torch.from_numpy(content.target.astype(np.int64))
        images = ImageDataset(pixels, labels, 17, DIGITS)
        order, size = permutation(len(images), self.seed), len(images) // 10 + 1
        parts = {
            "test": order[:size],
            "validation": order[size : 2 * size],
            "train": order[2 * size :],
        }
        return images.select(parts[split].sort().values)


@dataclass(frozen=True)
class TrainingAndTestFiles(ImageSource):
    """Labelled 8-bit images in files of a training and a test set, as torchvision keeps them.

    Validation images are held out of the training set.
    """

    directory: str
    download: bool = False
    validation_size: int = 5000
    """Number of training images held out for validation."""
    seed: Seed = 0
    """Seed that decides which images are held out."""

    folder: ClassVar[str]
    """Folder of the files inside torchvision's root folder."""
    class_names: ClassVar[tuple[str, ...]] = DIGITS
    """Name of each class."""

    @abstractmethod
    def read(self, *, train: bool) -> Arrays:
        """Read the training or the test set."""

    def load(self, split: str) -> ImageDataset:
        if self.download:
            self._download()
        pixels, labels = self.read(train=split != "test")
        if len(pixels) != len(labels) or not set(labels.tolist()) <= set(range(10)):
            raise UserError(
                f"{type(self).__name__} in {self.directory} has {len(pixels)} images and "
                f"{len(labels)} labels, from {min(labels)} to {max(labels)}; expected a label from "
                "0 to 9 for each image"
            )
        images = ImageDataset(
            torch.tensor(pixels), torch.tensor(labels, dtype=torch.int64), 256, self.class_names
        )
        if split == "test":
            return images
        if not 0 < self.validation_size < len(images):
            raise UserError(
                f"validation_size must be between 1 and {len(images) - 1}, as the training set has "
                f"{len(images)} images; got {self.validation_size}"
            )
        order = permutation(len(images), self.seed)
        held_out, rest = order[: self.validation_size], order[self.validation_size :]
        return images.select((held_out if split == "validation" else rest).sort().values)

    def find(self, *names: str) -> list[Path]:
        """Return the files of these names that exist, compressed or not; UserError for none."""
        root = Path(self.directory).expanduser()
        folder = root / self.folder if (root / self.folder).is_dir() else root
        paths = [
            path for name in names if (path := find_plain_or_compressed(folder, name)) is not None
        ]
        if not paths:
            raise UserError(
                f"{folder} does not exist or holds none of {', '.join(names)} (plain, .gz or .xz): "
                f"set directory to the folder of the {type(self).__name__} files, or download to "
                "true"
            )
        return paths

    def _download(self) -> None:
        from torchvision import datasets

        try:
            root = Path(self.directory).expanduser()
            getattr(datasets, type(self).__name__)(root, download=True)
        # torchvision raises seven types of exception here.
        except Exception as error:
            raise UserError(
                f"{type(self).__name__} cannot be downloaded into {self.directory}: {error}"
            ) from error


@dataclass(frozen=True)
class MNIST(TrainingAndTestFiles):
    """MNIST: 60,000 training and 10,000 test images of digits, 28x28, grey with 256 levels."""

    directory: str
    """Folder of the four idx files (plain or .gz), or torchvision's root folder with MNIST/raw."""
    download: bool = False
    """Download missing files into directory with torchvision (12 MB)."""

    folder: ClassVar[str] = "MNIST/raw"

    def read(self, *, train: bool) -> Arrays:
        part = "train" if train else "t10k"
        (images,) = self.find(f"{part}-images-idx3-ubyte")
        (labels,) = self.find(f"{part}-labels-idx1-ubyte")
        return read_idx(images, 3)[..., None], read_idx(labels, 1)


@dataclass(frozen=True)
class CIFAR10(TrainingAndTestFiles):
    """CIFAR-10: 50,000 training and 10,000 test images, 32x32, RGB with 256 levels, 10 classes.

    The files are pickles, read by an unpickler that builds arrays and plain values only.
    """

    directory: str
    """torchvision's root folder with cifar-10-batches-py, or a folder of some batches (.xz too)."""
    download: bool = False
    """Download the missing set into directory with torchvision (170 MB), which checks its MD5."""
    validation_size: int = 2000
    """Number of training images held out for validation."""

    folder: ClassVar[str] = "cifar-10-batches-py"
    class_names: ClassVar[tuple[str, ...]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip

    def read(self, *, train: bool) -> Arrays:
        names = [f"data_batch_{number}" for number in range(1, 6)] if train else ["test_batch"]
        parts = [read_cifar_batch(path) for path in self.find(*names)]
        pixels, labels = zip(*parts, strict=True)
        return np.concatenate(pixels), np.concatenate(labels)


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
        listing = list_split(self._folder, split)
        images, damaged = self._find(listing, split, decode=True)
        self._report(listing, split, len(images), damaged)
        return _dataset(listing, [(image.label, image.pixels) for image in images])

    def stream(self, split: str) -> Iterator[ImageDataset]:
        """Yield the images of `load` in parts; each file is read twice, hashed and then decoded."""
        listing = list_split(self._folder, split)
        images, damaged = self._find(listing, split, decode=False)
        read = partial(self._read, split=split, hashed=None, decode=True)
        paths = [image.path for image in images]
        n_found = 0
        with closing(
            read_in_order(read, paths, count=len(paths), what="decoded images")
        ) as results:
            pairs = zip(images, results, strict=True)
            while some := list(islice(pairs, CHUNK)):
                damaged += [result for _, result in some if isinstance(result, str)]
                part = [(one.label, got[1]) for one, got in some if isinstance(got, tuple)]
                if part:
                    n_found += len(part)
                    yield _dataset(listing, part)
        self._report(listing, split, n_found, damaged)

    @property
    def _folder(self) -> Path:
        return Path(self.directory).expanduser()

    def _find(
        self, listing: Listing, split: str, *, decode: bool
    ) -> tuple[list[_Found], list[str]]:
        """Return the images of a split in the order of their hashes, and the damaged files."""
        shares = {"validation": self.validation_share, "test": self.test_share}
        hashed = {name: shares[name] for name in shares if name in listing.hashed_splits}
        by_hash = split == "train" or split in hashed
        read = partial(self._read, split=split, hashed=hashed if by_hash else None, decode=decode)
        what = "decoded images" if decode else "hashed images"
        paths = [path for path, _ in listing.files]
        images: list[_Found] = []
        damaged: list[str] = []
        with closing(read_in_order(read, paths, count=len(paths), what=what)) as results:
            for (path, label), result in zip(listing.files, results, strict=True):
                if isinstance(result, str):
                    damaged.append(result)
                elif result is not None:
                    images.append(_Found(result[0], label, path, result[1]))
        images.sort(key=lambda image: image[:2])  # independent of names, mixed over the classes
        return images, damaged

    def _read(
        self, path: Path, *, split: str, hashed: dict[str, float] | None, decode: bool
    ) -> tuple[bytes, Pixels] | str | None:
        """Return the hash of a file and its pixels, which are empty without `decode`.

        Returns None for a file of another split, and the name of a damaged file. hashed: shares of
        the splits by hash; None where the hash decides nothing. Raises UserError for another size.
        """
        try:
            content = (self._folder / path).read_bytes()
            if hashed is not None and split_by_hash(content, hashed) != split:
                return None
            digest = hashlib.sha256(content).digest()
            if not decode:
                return digest, np.zeros(0, np.uint8)
            sizes = (self.height, self.width, self.channels)
            return digest, decode_image(content, *sizes, resize=self.resize)
        except ImageSizeError as error:
            raise UserError(
                f"{self._folder / path} is {error} (pixels), expected {self.width} wide and "
                f"{self.height} high: set data.source.init_args.resize to true to crop and "
                "scale all images, or change height and width"
            ) from error
        # Pillow raises a dozen types of exception for damaged files.
        except Exception:
            return str(path)

    def _report(self, listing: Listing, split: str, n_found: int, damaged: list[str]) -> None:
        """Warn of damaged files; UserError where no image was found."""
        warn_of_skipped(self._folder, sorted(damaged), len(listing.files))
        if not n_found:
            raise UserError(
                f"no image of {self._folder} belongs to the split {split!r} and can be decoded: of "
                f"{len(listing.files)} files {len(damaged)} are damaged, and a split without a "
                "folder takes its share of the images by the hash of their content"
            )

    def load_all(self) -> ImageDataset:
        return self.load(ALL)


def _dataset(listing: Listing, images: list[tuple[int, Pixels]]) -> ImageDataset:
    """Return images, given by class index and pixels, with the classes of their folder."""
    stacked = torch.from_numpy(np.stack([pixels for _, pixels in images]))  # [N, H, W, C]
    labels = torch.tensor([label for label, _ in images]) if listing.class_names else None
    return ImageDataset(stacked, labels, 256, listing.class_names)
