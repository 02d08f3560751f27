"""Chorales that repeat a random motif with noise: music of known entropy.

Writes Jsb16thSeparated.json, in the form of the JSB chorales, and entropy.txt with the entropy in
nats per token. No model has a lower expected score, unless it saw the pieces. Each voice draws each
sixteenth of the motif uniformly from its own `notes` pitches. In each repeat, a sixteenth of a
voice keeps its pitch with probability 1 - change and otherwise takes one of the voice's other
pitches uniformly. With the motif R times in a piece, the entropy is (ln notes + (R - 1) h) / R nats
per token, with h = -(1 - change) ln(1 - change) - change ln(change / (notes - 1)). Transposed
pieces have another entropy: train without transposition. Drawn from a seed: no licence applies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from triptych.domains.music.tokenizers.chorales import HIGHEST, LOWEST, Grid
from triptych.domains.music.tokenizers.voices import N_VOICES
from triptych.types import Checked, OpenUnitInterval, PositiveInt, Seed

from ._draws import NoisyCopy, uniform_draws

SCALE = np.array([p for p in range(LOWEST, HIGHEST + 1) if p % 12 in (0, 2, 4, 7, 9)])
"""MIDI pitches C, D, E, G and A of all octaves, a scale without dissonances."""
FIRST_NOTE = np.array([12, 8, 4, 0])
"""Index in SCALE of the lowest pitch of soprano, alto, tenor and bass."""
MAX_NOTES = len(SCALE) - int(FIRST_NOTE.max())
SPLITS = {"train": "train", "validation": "valid", "test": "test"}
"""Names of the splits in the file."""


@dataclass(frozen=True)
class Options(Checked):
    """The distribution, and how much is drawn."""

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.notes <= MAX_NOTES:
            raise ValueError(f"notes must be from 2 to {MAX_NOTES}, got {self.notes}")


def main(options: Options) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the files."""
    pieces = {name: grids(options, split).tolist() for split, name in SPLITS.items()}
    yield "Jsb16thSeparated.json", [json.dumps(pieces)]
    yield "entropy.txt", [f"{entropy(options):.6f}"]


def grids(options: Options, split: str) -> Grid:
    """Return the pitches of the pieces of a split: int64 [N, T, 4]."""
    count = getattr(options, f"{split}_size")
    shape = (count, options.repeats, options.motif_steps, N_VOICES)
    copy = NoisyCopy(options.notes, options.change)
    notes = copy.chain(uniform_draws(options.seed, split, shape))
    grid: Grid = SCALE[FIRST_NOTE + notes.reshape(count, -1, N_VOICES)]  # [N, T, 4]
    return grid


def entropy(options: Options) -> float:
    """Return the entropy in nats per token."""
    return NoisyCopy(options.notes, options.change).chain_entropy(options.repeats)
