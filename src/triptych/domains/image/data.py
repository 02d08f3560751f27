"""From images to batches: settings, quantising, loaders. Whole numbers all the way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from triptych.domains.image.dataset import ImageDataset, Split
from triptych.domains.image.sources import Digits, ImageSource
from triptych.errors import UserError
from triptych.training.data import (
    FixedBatches,
    ResumableLoader,
    fixed_batches,
    shuffled_batches,
)
from triptych.training.held_out import ALL


@dataclass(frozen=True)
class DataConfig:
    """Which images, at how many levels, in batches of which size."""

    source: ImageSource = field(default_factory=Digits)
    """Where the images come from: Digits, MNIST, CIFAR10 or ImageFolder."""
    bits: int | None = None
    """Bits kept of each 8-bit value, 1 to 7; null keeps all levels of the source."""
    batch_size: int = 64
    """Images in a training batch."""
    evaluation_batch_size: int = 64
    """Images scored at once in validation; changes memory and speed, never a result."""
    validation_limit: int | None = None
    """Score only the first so many validation images while training; null scores all."""
    samples: int = 20
    """Images sampled after each validation, 0 for none; each costs one step per position."""

    def __post_init__(self) -> None:
        if self.bits is not None and not 1 <= self.bits <= 7:
            raise ValueError(f"bits must be from 1 to 7, or null for all levels, got {self.bits}")
        for name in ("batch_size", "evaluation_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1 image, got {getattr(self, name)}")
        if self.validation_limit is not None and self.validation_limit < 1:
            raise ValueError(
                f"validation_limit must be at least 1 image, or null for all, got "
                f"{self.validation_limit}"
            )
        if self.samples < 0:
            raise ValueError(f"samples must be 0 or more images, got {self.samples}")


class Batch(NamedTuple):
    """Some images, as they stand in the file."""

    pixels: Tensor  # uint8 [B, H, W, C]
    labels: Tensor | None  # int64 [B], None where the data has no classes


def read(config: DataConfig, split: Split | Literal["all"]) -> ImageDataset:
    """The images of one split, or of all of them, at the asked number of levels.

    Raises UserError for an unknown split and for missing or damaged data.
    """
    if split == ALL:
        images = config.source.load_all()
    elif split in get_args(Split):
        images = config.source.load(split)
    else:
        raise UserError(
            f"images have the splits train, validation and test (and all of a folder given in "
            f"their place), not {split!r}"
        )
    return images if config.bits is None else images.quantise(config.bits)


def batch_of(images: ImageDataset) -> Callable[[list[int], torch.Generator | None], Batch]:
    """A function that makes a batch of image numbers; there is no augmentation."""

    def make(items: list[int], generator: torch.Generator | None) -> Batch:
        picked = images.pick(torch.tensor(items))
        return Batch(picked.pixels, picked.labels)

    return make


def training_batches(images: ImageDataset, *, batch_size: int, seed: int) -> ResumableLoader:
    """Every image once an epoch, in an order of (seed, epoch)."""
    plan = shuffled_batches(len(images), batch_size)
    return ResumableLoader(len(images), plan, batch_of(images), seed=seed)


def evaluation_batches(images: ImageDataset, *, batch_size: int) -> FixedBatches:
    """Every image once, in the order of the split, the last batch included."""
    return fixed_batches(len(images), batch_of(images), batch_size=batch_size)
