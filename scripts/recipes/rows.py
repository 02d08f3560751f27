"""Grey images whose rows copy the row above with noise: images of known entropy.

Writes the four files of MNIST (idx), without classes, and entropy.txt with the entropy in bits per
sub-pixel. No model has a lower expected score, unless it saw the images. The pixels of the first
row are uniform over the levels; every other pixel is a noisy copy of the one above it, with h nats.
With width W, height H and K levels, the entropy of an image is W ln K + (H - 1) W h nats. The
levels are the highest bits of a pixel (data.bits). Drawn from a seed: no licence applies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych.types import Checked, OpenUnitInterval, PositiveInt, Seed

from ._draws import NoisyCopy, uniform_draws


@dataclass(frozen=True)
class Options(Checked):
    """The distribution, and how much is drawn."""

    height: PositiveInt = 8
    """Height of an image, in pixels."""
    width: PositiveInt = 8
    """Width of an image, in pixels."""
    bits: PositiveInt = 3
    """Bits of a pixel, 1 to 7: there are 2^bits grey levels."""
    change: OpenUnitInterval = 0.05
    """Probability that a pixel differs from the one above it, between 0 and 1."""
    train_size: PositiveInt = 20_000
    """Number of training images."""
    validation_size: PositiveInt = 1_000
    """Number of images that are added to the file of training, for data.source.validation_size."""
    test_size: PositiveInt = 2_000
    """Number of test images."""
    seed: Seed = 0
    """Seed of the random numbers; each split has its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits > 7:
            raise ValueError(f"bits is {self.bits}; expected 1 to 7")


def main(options: Options) -> Iterator[tuple[str, Iterable[str] | bytes]]:
    """Yield the files."""
    parts = {"train": ("train", "validation"), "t10k": ("test",)}
    for name, splits in parts.items():
        pixels = np.concatenate([images(options, split) for split in splits])
        scaled = np.left_shift(pixels, 8 - options.bits, dtype=np.uint8)  # [N, H, W]
        yield f"{name}-images-idx3-ubyte", idx(scaled)
        yield f"{name}-labels-idx1-ubyte", idx(np.zeros(len(pixels), np.uint8))
    yield "entropy.txt", [f"{entropy(options):.6f}"]


def images(options: Options, split: str) -> NDArray[np.uint8]:
    """Return the levels of the images of a split: uint8 [N, H, W]."""
    shape = (getattr(options, f"{split}_size"), options.height, options.width)
    copy = NoisyCopy(2**options.bits, options.change)
    return copy.chain(uniform_draws(options.seed, split, shape)).astype(np.uint8)


def idx(values: NDArray[np.uint8]) -> bytes:
    """Return an array of bytes as an idx file."""
    sizes = np.array(values.shape, ">u4").tobytes()
    return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()


def entropy(options: Options) -> float:
    """Return the entropy in bits per sub-pixel."""
    return NoisyCopy(2**options.bits, options.change).chain_entropy(options.height) / math.log(2)
