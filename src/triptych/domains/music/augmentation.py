"""Random variation of training pieces: after the split by piece, and never of held-out pieces."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Augmentation:
    """Random variation of training pieces (Huang et al. 2018, section 4.2)."""

    transpose: int = 3
    """Largest transposition up or down, in semitones; 0 for none. A piece is transposed only as far
    as it stays in the range of the piano's 88 keys, or of the chorales' 46 pitches."""
    stretch: tuple[float, ...] = (0.95, 0.975, 1.0, 1.025, 1.05)
    """Factors of time, of which one is drawn per performance; chorales are never stretched."""

    def __post_init__(self) -> None:
        """Raise ValueError for a negative transposition and for extreme factors."""
        if self.transpose < 0:
            raise ValueError(f"transpose must be 0 or more semitones, got {self.transpose}")
        if not self.stretch or not all(0.5 <= factor <= 2 for factor in self.stretch):
            raise ValueError(f"stretch needs factors from 0.5 to 2, got {list(self.stretch)}")


NO_AUGMENTATION = Augmentation(transpose=0, stretch=(1.0,))


def possible_shifts(
    pitches: NDArray[np.int64], *, most: int, lowest: int, highest: int
) -> list[int]:
    """List the transpositions of at most `most` semitones that keep all pitches in the range.

    0 is always among them, also for a piece that lies outside the range.
    """
    if not len(pitches):
        return [0]
    low, high = int(pitches.min()), int(pitches.max())
    return [
        shift
        for shift in range(-most, most + 1)
        if shift == 0 or (low + shift >= lowest and high + shift <= highest)
    ]


def draw(choices: Sequence[Choice], generator: torch.Generator) -> Choice:
    """Return one of the choices, each with the same probability."""
    return choices[int(torch.randint(len(choices), (), generator=generator))]
