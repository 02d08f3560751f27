"""Where images come from: digits without a download, MNIST, CIFAR-10, any folder.

Every source hands over integers exactly as they stand in the file; nothing on the way to the loss
is a float. A source of your own is a frozen dataclass below `ImageSource`, named in the YAML by
its class path.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from triptych.domains.image.dataset import ImageDataset, Split, hold_out, shuffled
from triptych.domains.image.folder import read_folder
from triptych.domains.image.formats import (
    find_packed,
    read_cifar_batch,
    read_idx,
    read_pickle,
)
from triptych.errors import UserError
from triptych.training.held_out import ALL


class ImageSource(ABC):
    """A data set of images of one size; subclasses are frozen dataclasses."""

    @abstractmethod
    def load(self, split: Split) -> ImageDataset:
        """Read one split. Raises UserError where files are missing or damaged."""

    def load_all(self) -> ImageDataset:
        """Read every image there is, whatever its split."""
        splits: tuple[Split, ...] = get_args(Split)
        parts = [self.load(split) for split in splits]
        labels = [part.labels for part in parts if part.labels is not None]
        return replace(
            parts[0],
            pixels=torch.cat([part.pixels for part in parts]),  # [N, H, W, C]
            labels=torch.cat(labels) if labels else None,
        )


def need_folder(directory: str, option: str) -> Path:
    """The folder as a path; raises UserError where it is not there."""
    path = Path(directory).expanduser()
    if not path.is_dir():
        raise UserError(f"{option}: the folder {directory} does not exist")
    return path


def _from_arrays(pixels: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> ImageDataset:
    """8-bit images of labelled arrays, copied into memory that tensors may own."""
    return ImageDataset(
        torch.from_numpy(np.array(pixels)), torch.from_numpy(np.array(labels)), 256, names
    )


@dataclass(frozen=True)
class Digits(ImageSource):
    """1,797 handwritten digits, 8x8, grey with 17 levels, inside scikit-learn's package.

    Split by seed into 1,437 to train, 180 for validation and 180 for the test.
    """

    seed: int = 0
    """which images are held out (a whole number)"""

    def load(self, split: Split) -> ImageDataset:
        """Read one split; UserError where scikit-learn is not installed."""
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise UserError(
                "the digits come with scikit-learn, which is not installed: "
                'pip install "triptych[demo]"'
            ) from error
        content = load_digits()
        # scikit-learn hands out whole numbers 0 to 16 as float64, so this cast is exact.
        pixels = torch.from_numpy(content.images.astype(np.uint8)).unsqueeze(-1)  # [N, H, W, 1]
        labels = torch.from_numpy(content.target.astype(np.int64))
        images = ImageDataset(pixels, labels, 17, tuple(str(digit) for digit in range(10)))
        order, held_out = shuffled(len(images), self.seed), len(images) // 10 + 1
        parts = {
            "test": order[:held_out],
            "validation": order[held_out : 2 * held_out],
            "train": order[2 * held_out :],
        }
        return images.pick(parts[split].sort().values)


@dataclass(frozen=True)
class MNIST(ImageSource):
    """MNIST: 60,000 + 10,000 handwritten digits, 28x28, grey with 256 levels."""

    directory: str
    """folder with the four idx files (plain or .gz), or torchvision's root over MNIST/raw"""
    download: bool = False
    """fetch the files through torchvision into directory where they are missing (12 MB)"""
    validation: int = 5000
    """images held out of the 60,000 for validation (a number)"""
    seed: int = 0
    """which images validation takes (a whole number)"""

    def load(self, split: Split) -> ImageDataset:
        """Read one split; UserError where a file is missing or damaged."""
        part = "t10k" if split == "test" else "train"
        root = Path(self.directory).expanduser()
        if self.download or (root / "MNIST" / "raw").is_dir():
            pixels, labels = self._through_torchvision(root, train=part == "train")
        else:
            pixels, labels = self._from_idx(need_folder(self.directory, "MNIST directory"), part)
        if len(pixels) != len(labels):
            raise UserError(
                f"MNIST in {self.directory} has {len(pixels)} images but {len(labels)} labels "
                f"in its {part} files"
            )
        if len(labels) and labels.max() > 9:
            raise UserError(f"MNIST in {self.directory} has the label {labels.max()}, over 9")
        names = tuple(str(digit) for digit in range(10))
        images = _from_arrays(pixels[..., None], labels.astype(np.int64), names)
        if split == "test":
            return images
        return hold_out(images, split, validation=self.validation, seed=self.seed)

    def _from_idx(self, folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
        arrays = []
        for kind, dimensions in (("images", 3), ("labels", 1)):
            name = f"{part}-{kind}-idx{dimensions}-ubyte"
            path = find_packed(folder, name)
            if path is None:
                raise UserError(
                    f"{self.directory} holds neither {name} nor {name}.gz, and no MNIST/raw "
                    "folder: point directory at the MNIST files, or set download to true"
                )
            arrays.append(read_idx(path, dimensions))
        return arrays[0], arrays[1]

    def _through_torchvision(self, root: Path, *, train: bool) -> tuple[np.ndarray, np.ndarray]:
        from torchvision import datasets

        try:
            content = datasets.MNIST(str(root), train=train, download=self.download)
        # Missing, cut and foreign files and a failed download raise seven exception types here.
        except Exception as error:
            raise UserError(f"MNIST in {self.directory} cannot be read: {error}") from error
        return content.data.numpy(), content.targets.numpy()


@dataclass(frozen=True)
class CIFAR10(ImageSource):
    """CIFAR-10: 32x32 RGB images of ten things, 256 levels, 50,000 + 10,000 when whole.

    The whole set is read through torchvision, which checks every MD5. A folder with only some of
    the five training batches (plain or .xz) is read directly, with an unpickler that can make
    arrays and plain values and nothing else.
    """

    directory: str
    """torchvision's root over cifar-10-batches-py, or a folder with some of the batches"""
    download: bool = False
    """fetch the whole set through torchvision into directory where it is missing (170 MB)"""
    validation: int = 2000
    """images held out of the training batches for validation (a number)"""
    seed: int = 0
    """which images validation takes (a whole number)"""

    def load(self, split: Split) -> ImageDataset:
        """Read one split; UserError where a file is missing or damaged."""
        root = Path(self.directory).expanduser()
        batches = root / "cifar-10-batches-py"
        whole = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch", "batches.meta"]
        if self.download or all((batches / name).is_file() for name in whole):
            images = self._through_torchvision(root, train=split != "test")
        else:
            folder = batches if batches.is_dir() else need_folder(self.directory, "CIFAR directory")
            images = self._from_batches(folder, whole[5:6] if split == "test" else whole[:5])
        if split == "test":
            return images
        return hold_out(images, split, validation=self.validation, seed=self.seed)

    def _from_batches(self, folder: Path, names: list[str]) -> ImageDataset:
        found = [path for name in names if (path := find_packed(folder, name)) is not None]
        if not found:
            raise UserError(
                f"{folder} holds none of {', '.join(names)} (plain or .xz): point directory at "
                "the CIFAR-10 batches, or set download to true"
            )
        parts = [read_cifar_batch(path) for path in found]
        meta = find_packed(folder, "batches.meta")
        if meta is None:
            class_names = tuple(str(number) for number in range(10))
        else:
            label_names = read_pickle(meta).get(b"label_names", [])
            class_names = tuple(name.decode() for name in label_names)
            if len(class_names) != 10:
                raise UserError(f"{meta} names {len(class_names)} classes, expected 10")
        pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return _from_arrays(pixels, labels, class_names)

    def _through_torchvision(self, root: Path, *, train: bool) -> ImageDataset:
        from torchvision import datasets

        try:
            content = datasets.CIFAR10(str(root), train=train, download=self.download)
        # Missing and damaged files and a failed download raise several exception types here.
        except Exception as error:
            raise UserError(f"CIFAR-10 in {self.directory} cannot be read: {error}") from error
        labels = np.asarray(content.targets, dtype=np.int64)
        return _from_arrays(content.data, labels, tuple(content.classes))


@dataclass(frozen=True)
class ImageFolder(ImageSource):
    """Any folder of PNG, JPEG, BMP, GIF, TIFF, WebP or PPM images; sub-folders are classes.

    Or splits, where they are called train, validation (valid, val) and test, with classes below. A
    split without such a folder is taken out of train by the hash of each file, so equal files never
    lie in two of these and a new image moves no other. A corrupt image is skipped, counted,
    named.
    """

    directory: str
    """the folder; its sub-folders, if it has any, are the classes, or train, validation and test"""
    height: int
    """height of every image, pixels"""
    width: int
    """width of every image, pixels"""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for RGB; images are converted"""
    resize: bool = False
    """crop images of another size centrally and scale them instead of stopping"""
    validation: float = 0.1
    """part of the images held out for validation, 0 to 1"""
    test: float = 0.1
    """part of the images held out for the test, 0 to 1"""

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise ValueError(f"height {self.height} and width {self.width} must be at least 1")
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 (grey) or 3 (RGB), not {self.channels}")
        if not (0 < self.validation < 1 and 0 <= self.test < 1 - self.validation):
            raise ValueError(
                f"validation {self.validation} and test {self.test} must leave images to train on"
            )

    def load(self, split: Split) -> ImageDataset:
        """Read one split; UserError names a image of the wrong size."""
        return self._read(split)

    def load_all(self) -> ImageDataset:
        """Read every image, in the order of one split."""
        return self._read(ALL)

    def _read(self, split: str) -> ImageDataset:
        content = read_folder(
            need_folder(self.directory, "ImageFolder directory"),
            split,
            height=self.height,
            width=self.width,
            channels=self.channels,
            resize=self.resize,
            validation=self.validation,
            test=self.test,
        )
        labels = None if content.labels is None else torch.from_numpy(content.labels)
        return ImageDataset(torch.from_numpy(content.pixels), labels, 256, content.class_names)
