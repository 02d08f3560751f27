"""A synthetic image source with known entropy: random first rows, copied downwards with errors."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from triptych.domains.pictures.data import ImageDataset
from triptych.domains.pictures.sources import ImageSource
from triptych.domains.synthetic import NoisyCopy, SyntheticSource, uniform_draws
from triptych.types import OpenUnitInterval, PositiveInt, Seed


@dataclass(frozen=True)
class CopiedRows(ImageSource, SyntheticSource):
    """Grey images with a random first row, in which every other row is a noisy copy of the last.

    The pixels of the first row are uniform over the levels. Every other pixel has the level of the
    pixel above it with probability 1 - change, otherwise one of the other levels, uniformly. With
    width W, height H and K levels, the entropy of an image is W ln K + (H - 1) W h nats, where
    h = -(1 - change) ln(1 - change) - change ln(change / (K - 1)).
    """

    height: PositiveInt = 8
    """Height of an image, in pixels."""
    width: PositiveInt = 8
    """Width of an image, in pixels."""
    levels: int = 8
    """Number of grey levels, 2 to 128."""
    change: OpenUnitInterval = 0.05
    """Probability that a pixel differs from the one above it, between 0 and 1."""
    train_size: PositiveInt = 20_000
    """Number of training images."""
    validation_size: PositiveInt = 1_000
    """Number of validation images."""
    test_size: PositiveInt = 2_000
    """Number of test images."""
    seed: Seed = 0
    """Seed of the random numbers; each split has its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Images of 256 levels may be shifted to fewer bits by data.bits, which changes the entropy.
        if not 2 <= self.levels <= 128:
            raise ValueError(f"levels must be from 2 to 128, got {self.levels}")

    def _copy(self) -> NoisyCopy:
        return NoisyCopy(self.levels, self.change)

    def load(self, split: str) -> ImageDataset:
        """Generate one split; the same images every time."""
        count = getattr(self, f"{split}_size")
        drawn = uniform_draws(self.seed, split, (count, self.height, self.width))
        pixels = self._copy().chain(drawn).astype(np.uint8)  # [N, H, W]
        return ImageDataset(torch.from_numpy(pixels).unsqueeze(-1), None, self.levels)

    def entropy(self) -> float:
        """Return the entropy of the source, in bits per sub-pixel."""
        return self._copy().chain_entropy(self.height) / math.log(2)
