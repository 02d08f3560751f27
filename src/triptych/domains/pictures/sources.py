"""Sources of images: digits of scikit-learn, MNIST and CIFAR-10.

Every source returns the integers of its files; nothing between file and loss is a float. A source
of your own is a frozen dataclass that inherits from `ImageSource`, named in the YAML by its class
path.
"""

import io
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.pictures.data import SPLITS, ImageDataset, split_by_seed
from triptych.errors import UserError, library
from triptych.files.lines import SUFFIXES, read_content
from triptych.files.splits import ALL
from triptych.types import Checked, Seed

Pixels = NDArray[np.uint8]
DIGITS = tuple("0123456789")
Arrays = tuple[Pixels, NDArray[np.integer]]


class ImageSource(Checked, ABC):
    """A dataset of images of one size; subclasses are frozen dataclasses."""

    @abstractmethod
    def load(self, split: str) -> ImageDataset:
        """Read train, validation or test. Raises UserError for missing or damaged files."""

    def stream(self, split: str) -> Iterator[ImageDataset]:
        """Yield the images of `load`, or of `all`, in parts; not all need be in memory."""
        return map(self.load, SPLITS if split == ALL else [split])


@dataclass(frozen=True)
class Digits(ImageSource):
    """1,797 handwritten digits, 8x8, grey with 17 levels, from the package scikit-learn.

    Split by seed into 1,437 training, 180 validation and 180 test images.
    """

    seed: Seed = 0
    """Seed that decides which images are held out."""

    def load(self, split: str) -> ImageDataset:
        content = library("sklearn.datasets", "the source of digits", "demo").load_digits()
        # scikit-learn returns the integers 0 to 16 as float64; the conversion is exact.
        pixels = torch.from_numpy(content.images.astype(np.uint8)).unsqueeze(-1)  # [N, H, W, 1]
        labels = torch.from_numpy(content.target.astype(np.int64))
        images = ImageDataset(pixels, labels, 17, DIGITS)
        size = len(images) // 10 + 1
        return split_by_seed(images, split, self.seed, test=size, validation=size)


@dataclass(frozen=True)
class TrainingAndTestFiles(ImageSource):
    """Labelled 8-bit images in files of a training and a test set, as torchvision keeps them.

    Validation images are held out of the training set.
    """

    directory: str
    """Folder of the data set's files (compressed or not; of CIFAR-10 some batches are enough), or
    torchvision's root folder."""
    download: bool = False
    """Download missing files into directory with torchvision (MNIST 12 MB, CIFAR-10 170 MB)."""
    validation_size: int = 5000
    """Number of training images held out for validation."""
    seed: Seed = 0
    """Seed that decides which images are held out."""

    folder: ClassVar[str]
    """Folder of the files inside torchvision's root folder."""
    class_names: ClassVar[tuple[str, ...]] = DIGITS

    @abstractmethod
    def read(self, *, train: bool) -> Arrays:
        """Return pixels [N, H, W, C] and class indices [N] of the training or the test set."""

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
        return split_by_seed(images, split, self.seed, validation=self.validation_size)

    def find(self, *names: str) -> list[Path]:
        """Return the files of these names that exist, compressed or not; UserError for none."""
        root = Path(self.directory).expanduser()
        folder = root / self.folder if (root / self.folder).is_dir() else root
        forms = [[folder / f"{name}{suffix}" for suffix in ("", *SUFFIXES)] for name in names]
        paths = [path for files in forms for path in [*filter(Path.is_file, files)][:1]]
        if not paths:
            raise UserError(
                f"{folder} does not exist or holds none of {', '.join(names)}, compressed or not: "
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

    validation_size: int = 2000

    folder: ClassVar[str] = "cifar-10-batches-py"
    class_names: ClassVar[tuple[str, ...]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip

    def read(self, *, train: bool) -> Arrays:
        names = [f"data_batch_{number}" for number in range(1, 6)] if train else ["test_batch"]
        parts = [read_cifar_batch(path) for path in self.find(*names)]
        pixels, labels = zip(*parts, strict=True)
        return np.concatenate(pixels), np.concatenate(labels)


@contextmanager
def reading(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, compressed or not; an error until it is used is a UserError."""
    try:
        yield read_content(path)
    # A damaged pickle raises nearly any exception.
    except Exception as error:
        raise UserError(f"{path} cannot be read: {str(error) or type(error).__name__}") from error


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes: uint8 with `dimensions` axes.

    The format: two zero bytes, the type (8 is uint8), the number of axes, their sizes as big-endian
    32-bit integers, the values. Raises UserError for a file of another type or length.
    """
    with reading(path) as content:
        if content[:4] != bytes([0, 0, 8, dimensions]):
            raise ValueError(
                f"it begins with {content[:4].hex(' ') or 'nothing'}, expected 00 00 08 "
                f"{dimensions:02x} of unsigned bytes with {dimensions} dimensions"
            )
        sizes = np.frombuffer(content, ">u4", dimensions, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(sizes)


class ArraysOnlyUnpickler(pickle.Unpickler):
    """An unpickler of numbers, strings, lists, dicts and NumPy arrays, and of nothing else.

    A pickle may name any callable of any module. Only the three names that an array needs are
    looked up, so that a foreign file cannot run code.
    """

    ALLOWED = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no image needs")
        return super().find_class(module, name)


def read_cifar_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one CIFAR-10 batch: pixels uint8 [N, 32, 32, 3] and labels int64 [N].

    The file has one row per image: 1,024 red, 1,024 green and 1,024 blue values.
    Raises UserError for a damaged batch and for one of another form.
    """
    with reading(path) as content:
        batch = ArraysOnlyUnpickler(io.BytesIO(content), encoding="bytes").load()
        rows = batch[b"data"].astype(np.uint8, casting="safe")  # an error for any other type
        planes = rows.reshape(-1, 3, 32, 32)  # [N, C, H, W]
        return planes.transpose(0, 2, 3, 1), np.array(batch[b"labels"], dtype=np.int64)
