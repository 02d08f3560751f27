"""Image datasets as integers, held-out parts, batches and loaders."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from triptych.errors import UserError
from triptych.training.data import FixedBatches, ResumableLoader, cut, shuffled_batches

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class ImageDataset:
    """The images of one split, all of one size, with sub-pixel values from 0 to levels - 1."""

    pixels: Tensor
    """uint8 [N, H, W, C]"""
    labels: Tensor | None
    """Class index of each image, int64 [N]; None for images without classes."""
    levels: int
    """Number of values that a sub-pixel can take."""
    class_names: tuple[str, ...] = ()
    """Name of each class; empty for images without classes."""

    def __len__(self) -> int:
        return len(self.pixels)

    def select(self, indices: Tensor) -> "ImageDataset":
        """Return the images at these indices (int64 [M]), in that order."""
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, pixels=self.pixels[indices], labels=labels)

    def first(self, count: int | None) -> "ImageDataset":
        """Return the first `count` images; all for None."""
        return self.select(torch.arange(len(self))[:count])

    def quantize(self, bits: int) -> "ImageDataset":
        """Return the images with 2**bits levels, by an integer shift; bits from 1 to 7.

        Raises UserError for images that do not have 256 levels.
        """
        if self.levels != 256:
            raise UserError(f"data.bits = {bits} needs images of 256 levels, not {self.levels}")
        return replace(self, pixels=self.pixels >> (8 - bits), levels=2**bits)

    def vocabulary(self) -> dict[str, Any]:
        """Return what a checkpoint stores of the data: shape [H, W, C], levels, class_names."""
        return {
            "shape": list(self.pixels.shape[1:]),
            "levels": self.levels,
            "class_names": list(self.class_names),
        }


def permutation(count: int, seed: int) -> Tensor:
    """Return a permutation of 0 .. count-1, int64 [count], equal on every machine and version.

    The indices are sorted by a hash of (seed, index). The permutations of library generators may
    change between versions, which would move images from the training to the test split.
    """
    keys = [hashlib.sha256(f"{seed}:{index}".encode()).digest() for index in range(count)]
    return torch.tensor(sorted(range(count), key=keys.__getitem__), dtype=torch.int64)


def hold_out(
    images: ImageDataset, split: Split, *, validation_size: int, seed: int
) -> ImageDataset:
    """Return the train or the validation part of a training set, in the order of the set.

    validation_size: number of images in the validation part; the seed decides which.
    Raises UserError for a validation part that is empty or leaves no training image.
    """
    if not 0 < validation_size < len(images):
        raise UserError(
            f"validation_size must be between 1 and {len(images) - 1}, as the training set has "
            f"{len(images)} images; got {validation_size}"
        )
    order = permutation(len(images), seed)
    chosen = order[:validation_size] if split == "validation" else order[validation_size:]
    return images.select(chosen.sort().values)


class Batch(NamedTuple):
    """A batch of images, as integers."""

    pixels: Tensor  # uint8 [B, H, W, C]
    labels: Tensor | None  # int64 [B]; None for images without classes


def collate(images: ImageDataset) -> Callable[[list[int], torch.Generator | None], Batch]:
    """Return the function that makes a batch of image indices; nothing is augmented."""

    def make(indices: list[int], generator: torch.Generator | None) -> Batch:
        chosen = images.select(torch.tensor(indices))
        return Batch(chosen.pixels, chosen.labels)

    return make


def training_batches(images: ImageDataset, *, batch_size: int, seed: int) -> ResumableLoader:
    """Return a loader of every image once per epoch, in an order that (seed, epoch) decides."""
    plan = shuffled_batches(len(images), batch_size)
    return ResumableLoader(len(images), plan, collate(images), seed=seed)


def evaluation_batches(images: ImageDataset, *, batch_size: int) -> FixedBatches:
    """Return a loader of every image once, in the order of the split, last batch included."""
    return FixedBatches(cut(range(len(images)), batch_size), collate(images))
