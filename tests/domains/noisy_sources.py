"""Sources in memory whose data have a known entropy, drawn as by the recipes rows and motifs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch

from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.pictures.data import ImageDataset
from triptych.domains.pictures.sources import ImageSource
from triptych.tools import recipes
from triptych.types import OpenUnitInterval, PositiveInt, Seed

motifs = recipes.load("motifs")
draws = import_module("triptych.recipes._draws")
NoisyCopy, uniform_draws = draws.NoisyCopy, draws.uniform_draws


@dataclass(frozen=True)
class CopiedRows(ImageSource):
    """Grey images with a random first row, in which every other row is a noisy copy of the last."""

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

    def load(self, split: str) -> ImageDataset:
        count = getattr(self, f"{split}_size")
        drawn = uniform_draws(self.seed, split, (count, self.height, self.width))
        pixels = NoisyCopy(self.levels, self.change).chain(drawn).astype(np.uint8)  # [N, H, W]
        return ImageDataset(torch.from_numpy(pixels).unsqueeze(-1), None, self.levels)

    def entropy(self) -> float:
        """Return the entropy of the source, in bits per sub-pixel."""
        return NoisyCopy(self.levels, self.change).chain_entropy(self.height) / math.log(2)


@dataclass(frozen=True)
class CopiedMotifs(motifs.Options, PieceSource):
    """The pieces of the recipe motifs."""

    content = ChoraleTokenizer.content

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        return [
            Piece(f"motif-{split}-{number:04d}", grid)
            for number, grid in enumerate(motifs.grids(self, split))
        ]

    def entropy(self) -> float:
        return motifs.entropy(self)
