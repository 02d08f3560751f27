"""Images of known entropy: random first rows, copied downwards with mistakes."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from triptych.domains.image.dataset import ImageDataset, Split
from triptych.domains.image.sources import ImageSource
from triptych.training.known_law import KnownLaw, NoisyCopy, chances


@dataclass(frozen=True)
class CopiedRows(ImageSource, KnownLaw):
    """Grey images whose first row is random and whose every other row copies the row above.

    The law: the pixels of the first row are drawn from all grey levels, each as likely. Every other
    pixel has the level of the one above it with probability 1 - change, else one of the others,
    each as likely. With width W, height H and K levels a image has W ln K + (H - 1) W h nats,
    h = -(1 - change) ln(1 - change) - change ln(change / (K - 1)).
    """

    height: int = 8
    """height of a image, pixels"""
    width: int = 8
    """width of a image, pixels"""
    levels: int = 8
    """grey levels, 2 to 128"""
    change: float = 0.05
    """probability that a pixel differs from the one above it, above 0 and below 1"""
    train: int = 20_000
    """images to train on (a number)"""
    validation: int = 1_000
    """images that are scored while training (a number)"""
    test: int = 2_000
    """images for the end (a number)"""
    seed: int = 0
    """seed of the draw; each split has its own random numbers (a whole number)"""

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1:
            raise ValueError(f"height {self.height} and width {self.width} must be at least 1")
        # Images of 256 levels may be shifted to fewer bits by data.bits, which is another law.
        if not 2 <= self.levels <= 128:
            raise ValueError(f"levels must be from 2 to 128, got {self.levels}")
        if min(self.train, self.validation, self.test) < 1:
            raise ValueError("train, validation and test must each be at least one image")
        self._copy()

    def _copy(self) -> NoisyCopy:
        return NoisyCopy(self.levels, self.change)

    def load(self, split: Split) -> ImageDataset:
        """Draw one split; the same one every time."""
        count = {"train": self.train, "validation": self.validation, "test": self.test}[split]
        drawn = chances(self.seed, split, (count, self.height, self.width))
        rows = [(drawn[:, 0] * self.levels).astype(np.int64)]
        for row in range(1, self.height):
            rows.append(self._copy().apply(rows[-1], drawn[:, row]))
        pixels = np.stack(rows, axis=1).astype(np.uint8)  # [N, H, W]
        return ImageDataset(torch.from_numpy(pixels).unsqueeze(-1), None, self.levels)

    def entropy(self) -> float:
        """Bits per dim of the law."""
        first = math.log(self.levels)
        rest = (self.height - 1) * self._copy().entropy()
        return (first + rest) / self.height / math.log(2)

    def nll(self, split: str, limit: int | None = None) -> float:
        """The law's own nats of the split, or of its first images."""
        pixels = self.load(split).pixels[:limit]  # type: ignore[arg-type]
        changed = int((pixels[:, 1:] != pixels[:, :-1]).sum())
        first = pixels[:, 0].numel()
        copied = pixels.numel() - first - changed
        return first * math.log(self.levels) + self._copy().nll(copied, changed)
