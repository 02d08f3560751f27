"""From pictures to batches: settings, quantising, loaders. Whole numbers all the way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from triptych.domains.image.pictures import Pictures, Split
from triptych.domains.image.sources import Digits, PictureSource
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
    """Which pictures, at how many levels, in batches of which size."""

    source: PictureSource = field(default_factory=Digits)
    """Where the pictures come from: Digits, MNIST, CIFAR10 or PictureFolder."""
    bits: int | None = None
    """Bits kept of each 8-bit value, 1 to 7; null keeps all levels of the source."""
    batch_size: int = 64
    """Pictures in a training batch."""
    evaluation_batch_size: int = 64
    """Pictures scored at once in validation; changes memory and speed, never a result."""
    validation_limit: int | None = None
    """Score only the first so many validation pictures while training; null scores all."""
    samples: int = 20
    """Pictures sampled after each validation, 0 for none; each costs one step per position."""

    def __post_init__(self) -> None:
        if self.bits is not None and not 1 <= self.bits <= 7:
            raise ValueError(f"bits must be from 1 to 7, or null for all levels, got {self.bits}")
        for name in ("batch_size", "evaluation_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1 picture, got {getattr(self, name)}")
        if self.validation_limit is not None and self.validation_limit < 1:
            raise ValueError(
                f"validation_limit must be at least 1 picture, or null for all, got "
                f"{self.validation_limit}"
            )
        if self.samples < 0:
            raise ValueError(f"samples must be 0 or more pictures, got {self.samples}")


class Batch(NamedTuple):
    """Some pictures, as they stand in the file."""

    pixels: Tensor  # uint8 [B, H, W, C]
    labels: Tensor | None  # int64 [B], None where the data has no classes


def read(config: DataConfig, split: Split | Literal["all"]) -> Pictures:
    """The pictures of one split, or of all of them, at the asked number of levels.

    Raises UserError for an unknown split and for missing or damaged data.
    """
    if split == ALL:
        pictures = config.source.load_all()
    elif split in get_args(Split):
        pictures = config.source.load(split)
    else:
        raise UserError(
            f"pictures have the splits train, validation and test (and all of a folder given in "
            f"their place), not {split!r}"
        )
    return pictures if config.bits is None else pictures.quantise(config.bits)


def batch_of(pictures: Pictures) -> Callable[[list[int], torch.Generator | None], Batch]:
    """A function that makes a batch of picture numbers; there is no augmentation."""

    def make(items: list[int], generator: torch.Generator | None) -> Batch:
        picked = pictures.pick(torch.tensor(items))
        return Batch(picked.pixels, picked.labels)

    return make


def training_batches(pictures: Pictures, *, batch_size: int, seed: int) -> ResumableLoader:
    """Every picture once an epoch, in an order of (seed, epoch)."""
    plan = shuffled_batches(len(pictures), batch_size)
    return ResumableLoader(len(pictures), plan, batch_of(pictures), seed=seed)


def evaluation_batches(pictures: Pictures, *, batch_size: int) -> FixedBatches:
    """Every picture once, in the order of the split, the last batch included."""
    return fixed_batches(len(pictures), batch_of(pictures), batch_size=batch_size)
