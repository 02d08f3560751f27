"""Variations of training pieces; never of what is held out, and always after the split by piece."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch

from triptych.domains.music.chorales import HIGHEST, LOWEST, SILENT, Grid
from triptych.domains.music.events import Notes, settle
from triptych.domains.music.midi import MAX_SECONDS

Choice = TypeVar("Choice")

PIANO_LOWEST, PIANO_HIGHEST = 21, 108
"""A0 to C8, the keys of a piano."""


@dataclass(frozen=True)
class Augmentation:
    """How far training pieces are varied (Huang et al. 2018, section 4.2)."""

    transpose: int = 3
    """Largest transposition up or down, in semitones; 0 for none. A copy that would leave the range
    (the piano's 88 keys, the chorales' 46 pitches) is not made at all."""
    stretch: tuple[float, ...] = (0.95, 0.975, 1.0, 1.025, 1.05)
    """Factors of time, one drawn for each copy of a performance; chorales are never stretched."""

    def __post_init__(self) -> None:
        if self.transpose < 0:
            raise ValueError(f"transpose must be 0 or more semitones, got {self.transpose}")
        if not self.stretch or not all(0.5 <= factor <= 2 for factor in self.stretch):
            raise ValueError(f"stretch needs factors from 0.5 to 2, got {list(self.stretch)}")


NO_AUGMENTATION = Augmentation(transpose=0, stretch=(1.0,))


def possible_shifts(pitches: np.ndarray, *, most: int, lowest: int, highest: int) -> list[int]:
    """List the transpositions of at most `most` semitones that keep all pitches in the range.

    0 is always among them, also for a piece that lies outside already.
    """
    if not len(pitches):
        return [0]
    low, high = int(pitches.min()), int(pitches.max())
    return [
        shift
        for shift in range(-most, most + 1)
        if shift == 0 or (low + shift >= lowest and high + shift <= highest)
    ]


def transpose_grid(grid: Grid, settings: Augmentation, generator: torch.Generator) -> Grid:
    """Transpose a chorale by one of the shifts that its range allows, each as likely."""
    shifts = possible_shifts(
        grid[grid != SILENT], most=settings.transpose, lowest=LOWEST, highest=HIGHEST
    )
    shift = _draw(shifts, generator)
    return np.where(grid == SILENT, SILENT, grid + shift)


def vary_notes(notes: Notes, settings: Augmentation, generator: torch.Generator) -> Notes:
    """Transpose and stretch a whole performance."""
    shifts = possible_shifts(
        notes.pitch, most=settings.transpose, lowest=PIANO_LOWEST, highest=PIANO_HIGHEST
    )
    shift = _draw(shifts, generator)
    last = notes.release.max(initial=0.0)
    # A piece near the longest that is read must not grow over it; 1 is always possible.
    factors = [factor for factor in settings.stretch if factor <= 1 or last * factor <= MAX_SECONDS]
    factor = _draw(factors or [1.0], generator)
    return stretch(replace(notes, pitch=notes.pitch + shift), factor)


def stretch(notes: Notes, factor: float) -> Notes:
    """Multiply all times; a factor of 1 gives the very same notes."""
    if factor == 1:
        return notes
    # Closer onsets may meet on one point of the grid, hence the rule of one string per key again.
    return settle(replace(notes, onset=notes.onset * factor, release=notes.release * factor))


def _draw(choices: Sequence[Choice], generator: torch.Generator) -> Choice:
    return choices[int(torch.randint(len(choices), (), generator=generator))]
