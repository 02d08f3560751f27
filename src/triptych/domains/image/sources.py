"""Sources of images: digits of scikit-learn, MNIST, CIFAR-10 and folders of image files.

Every source returns the integers of its files; nothing between file and loss is a float. A source
of your own is a frozen dataclass that inherits from `ImageSource`, named in the YAML by its class
path.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from triptych.domains.image.data import ImageDataset, Split, hold_out, permutation
from triptych.domains.image.formats import find_packed, read_cifar_batch, read_idx, read_pickle
from triptych.domains.image.image_folder import read_folder
from triptych.domains.sources import ALL
from triptych.errors import UserError


class ImageSource(ABC):
    """A dataset of images of one size; subclasses are frozen dataclasses."""

    @abstractmethod
    def load(self, split: Split) -> ImageDataset:
        """Read one split. Raises UserError for missing or damaged files."""

    def load_all(self) -> ImageDataset:
        """Read the images of all splits."""
        splits: tuple[Split, ...] = get_args(Split)
        parts = [self.load(split) for split in splits]
        labels = [part.labels for part in parts if part.labels is not None]
        return replace(
            parts[0],
            pixels=torch.cat([part.pixels for part in parts]),  # [N, H, W, C]
            labels=torch.cat(labels) if labels else None,
        )


def existing_folder(directory: str, setting: str) -> Path:
    """Return the folder as a path; raises UserError where it does not exist."""
    path = Path(directory).expanduser()
    if not path.is_dir():
        raise UserError(f"{setting}: the folder {directory} does not exist")
    return path


def from_arrays(pixels: Any, labels: Any, class_names: tuple[str, ...]) -> ImageDataset:
    """Return 8-bit images of labelled arrays, copied into writable memory."""
    return ImageDataset(
        torch.from_numpy(np.array(pixels, dtype=np.uint8, order="C")),
        torch.from_numpy(np.array(labels, dtype=np.int64)),
        levels=256,
        class_names=class_names,
    )


@dataclass(frozen=True)
class Digits(ImageSource):
    """1,797 handwritten digits, 8x8, grey with 17 levels, from the package scikit-learn.

    Split by seed into 1,437 training, 180 validation and 180 test images.
    """

    seed: int = 0
    """Seed that decides which images are held out."""

    def load(self, split: Split) -> ImageDataset:
        """Read one split; raises UserError where scikit-learn is not installed."""
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
        images = ImageDataset(pixels, labels, 17, tuple(str(digit) for digit in range(10)))
        order, size = permutation(len(images), self.seed), len(images) // 10 + 1
        parts = {
            "test": order[:size],
            "validation": order[size : 2 * size],
            "train": order[2 * size :],
        }
        return images.select(parts[split].sort().values)


@dataclass(frozen=True)
class MNIST(ImageSource):
    """MNIST: 60,000 training and 10,000 test images of digits, 28x28, grey with 256 levels."""

    directory: str
    """Folder of the four idx files (plain or .gz), or torchvision's root folder with MNIST/raw."""
    download: bool = False
    """Download missing files into directory with torchvision (12 MB)."""
    validation_size: int = 5000
    """Number of training images held out for validation."""
    seed: int = 0
    """Seed that decides which images are held out."""

    def load(self, split: Split) -> ImageDataset:
        """Read one split; raises UserError for a missing or damaged file."""
        if self.download:
            open_torchvision("MNIST", self.directory, download=True)
        folder = existing_folder(self.directory, "MNIST directory")
        if (folder / "MNIST" / "raw").is_dir():
            folder = folder / "MNIST" / "raw"
        part = "t10k" if split == "test" else "train"
        pixels, labels = (
            self._read(folder, part, "images", 3),
            self._read(folder, part, "labels", 1),
        )
        if len(pixels) != len(labels):
            raise UserError(
                f"MNIST in {self.directory} has {len(pixels)} images but {len(labels)} labels "
                f"in its {part} files"
            )
        if len(labels) and labels.max() > 9:
            raise UserError(f"MNIST in {self.directory} has the label {labels.max()}, over 9")
        images = from_arrays(pixels[..., None], labels, tuple(str(digit) for digit in range(10)))
        if split == "test":
            return images
        return hold_out(images, split, validation_size=self.validation_size, seed=self.seed)

    def _read(self, folder: Path, part: str, kind: str, dimensions: int) -> Any:
        name = f"{part}-{kind}-idx{dimensions}-ubyte"
        path = find_packed(folder, name)
        if path is None:
            raise UserError(
                f"{folder} holds neither {name} nor {name}.gz: set directory to the folder of the "
                "MNIST files, or download to true"
            )
        return read_idx(path, dimensions)


@dataclass(frozen=True)
class CIFAR10(ImageSource):
    """CIFAR-10: 50,000 training and 10,000 test images, 32x32, RGB with 256 levels, 10 classes.

    A complete set is read by torchvision, which checks the MD5 of every file. A folder of some of
    the training batches (plain or .xz) is read by an unpickler that builds arrays and plain values
    only.
    """

    directory: str
    """torchvision's root folder with cifar-10-batches-py, or a folder of some batches."""
    download: bool = False
    """Download the missing set into directory with torchvision (170 MB)."""
    validation_size: int = 2000
    """Number of training images held out for validation."""
    seed: int = 0
    """Seed that decides which images are held out."""

    def load(self, split: Split) -> ImageDataset:
        """Read one split; raises UserError for a missing or damaged file."""
        root = Path(self.directory).expanduser()
        batches = root / "cifar-10-batches-py"
        names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch", "batches.meta"]
        if self.download or all((batches / name).is_file() for name in names):
            content = open_torchvision(
                "CIFAR10", self.directory, train=split != "test", download=self.download
            )
            images = from_arrays(content.data, content.targets, tuple(content.classes))
        else:
            folder = (
                batches
                if batches.is_dir()
                else existing_folder(self.directory, "CIFAR10 directory")
            )
            images = self._read_batches(folder, names[5:6] if split == "test" else names[:5])
        if split == "test":
            return images
        return hold_out(images, split, validation_size=self.validation_size, seed=self.seed)

    def _read_batches(self, folder: Path, names: list[str]) -> ImageDataset:
        found = [path for name in names if (path := find_packed(folder, name)) is not None]
        if not found:
            raise UserError(
                f"{folder} holds none of {', '.join(names)} (plain or .xz): set directory to the "
                "folder of the CIFAR-10 batches, or download to true"
            )
        parts = [read_cifar_batch(path) for path in found]
        class_names = tuple(str(number) for number in range(10))
        if (meta := find_packed(folder, "batches.meta")) is not None:
            class_names = tuple(name.decode() for name in read_pickle(meta).get(b"label_names", []))
            if len(class_names) != 10:
                raise UserError(f"{meta} names {len(class_names)} classes, expected 10")
        pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return from_arrays(pixels, labels, class_names)


def open_torchvision(name: str, directory: str, *, download: bool, train: bool = True) -> Any:
    """Open a dataset of torchvision, after a download of missing files if asked for.

    Raises UserError for missing and damaged files and for a failed download.
    """
    from torchvision import datasets

    try:
        root = str(Path(directory).expanduser())
        return getattr(datasets, name)(root, train=train, download=download)
    # torchvision raises seven types of exception here.
    except Exception as error:
        raise UserError(f"{name} in {directory} cannot be read: {error}") from error


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
    height: int
    """Height of every image, in pixels."""
    width: int
    """Width of every image, in pixels."""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for RGB; images are converted."""
    resize: bool = False
    """Crop and scale images of another size; false refuses them."""
    validation_share: float = 0.1
    """Share of the images held out for validation, 0 to 1."""
    test_share: float = 0.1
    """Share of the images held out for the test, 0 to 1."""

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise ValueError(f"height {self.height} and width {self.width} must be at least 1")
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 (grey) or 3 (RGB), not {self.channels}")
        if not (0 < self.validation_share < 1 and 0 <= self.test_share < 1 - self.validation_share):
            raise ValueError(
                f"validation_share {self.validation_share} and test_share {self.test_share} must "
                "leave images to train on"
            )

    def load(self, split: Split) -> ImageDataset:
        """Read one split; raises UserError for an image of another size."""
        return self._read(split)

    def load_all(self) -> ImageDataset:
        """Read all images in one order."""
        return self._read(ALL)

    def _read(self, split: str) -> ImageDataset:
        return read_folder(
            existing_folder(self.directory, "ImageFolder directory"),
            split,
            height=self.height,
            width=self.width,
            channels=self.channels,
            resize=self.resize,
            shares={"validation": self.validation_share, "test": self.test_share},
        )
