"""Images of one split as integers, and which of a training set are held out."""

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from triptych.errors import UserError

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class ImageDataset:
    """Images of one split: pixels uint8 [N, H, W, C] with values 0 to levels - 1."""

    pixels: Tensor
    """uint8 [N, H, W, C]"""
    labels: Tensor | None
    """int64 [N], or None where the images have no classes"""
    levels: int
    """number of values that a sub-pixel can take"""
    class_names: tuple[str, ...] = ()
    """name of each class, empty without classes"""

    def __len__(self) -> int:
        return len(self.pixels)

    def pick(self, indices: Tensor) -> "ImageDataset":
        """The images at these indices (int64 [M]), in that order."""
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, pixels=self.pixels[indices], labels=labels)

    def quantise(self, bits: int) -> "ImageDataset":
        """The same images with 2**bits levels, by an integer shift (1 to 7 bits).

        Raises UserError where the images do not have 256 levels.
        """
        if self.levels != 256:
            raise UserError(f"data.bits = {bits} needs images of 256 levels, not {self.levels}")
        return replace(self, pixels=self.pixels >> (8 - bits), levels=2**bits)


def shuffled(count: int, seed: int) -> Tensor:
    """A fixed order of 0 .. count-1, int64 [count], the same on every machine and version.

    Sorted by a hash of (seed, index): library generators do not promise the same permutation for
    ever, and a split that moves would mix training and test images.
    """
    keys = [hashlib.sha256(f"{seed}:{index}".encode()).digest() for index in range(count)]
    return torch.tensor(sorted(range(count), key=keys.__getitem__), dtype=torch.int64)


def hold_out(images: ImageDataset, split: Split, *, validation: int, seed: int) -> ImageDataset:
    """The train or the validation part of a training set: `validation` images drawn by seed.

    Both parts keep the order of the file. Raises UserError where nothing is left to train on.
    """
    if not 0 < validation < len(images):
        raise UserError(
            f"validation = {validation} images cannot be held out of {len(images)} training images"
        )
    order = shuffled(len(images), seed)
    chosen = order[:validation] if split == "validation" else order[validation:]
    return images.pick(chosen.sort().values)
