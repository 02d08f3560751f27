"""Sources in memory whose data have a known entropy, drawn as by the recipes rows and motifs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.voices import N_VOICES
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
class CopiedMotifs(PieceSource):
    """Chorales that repeat a random motif; each repeat changes a few pitches of the one before."""

    motif_steps: PositiveInt = 4
    """Length of the motif, in sixteenths."""
    repeats: PositiveInt = 8
    """Number of times that a piece plays the motif, the first time included."""
    notes: int = 8
    """Pitches per voice, 2 to 8 neighbours of a pentatonic scale."""
    change: OpenUnitInterval = 0.03
    """Probability that a sixteenth differs from the one a motif before, above 0 and below 1."""
    train_size: PositiveInt = 4_000
    """Number of training pieces."""
    validation_size: PositiveInt = 200
    """Number of validation pieces."""
    test_size: PositiveInt = 400
    """Number of test pieces."""
    seed: Seed = 0
    """Seed of the pieces; each split has its own random numbers."""

    content = ChoraleTokenizer.content

    def _copy(self) -> Any:
        return NoisyCopy(self.notes, self.change)

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        count = getattr(self, f"{split}_size")
        shape = (count, self.repeats, self.motif_steps, N_VOICES)
        drawn = uniform_draws(self.seed, split, shape)
        notes = self._copy().chain(drawn).reshape(count, -1, N_VOICES)  # [N, T, 4]
        grids = motifs.SCALE[motifs.FIRST_NOTE + notes]
        return [Piece(f"motif-{split}-{number:04d}", grid) for number, grid in enumerate(grids)]

    def entropy(self) -> float:
        return self._copy().chain_entropy(self.repeats)
