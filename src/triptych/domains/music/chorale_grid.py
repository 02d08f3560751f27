"""Chorales as a grid: four voices, a pitch or a rest in each sixteenth."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Grid: TypeAlias = NDArray[np.int64]
"""[T, 4]: MIDI pitch of soprano, alto, tenor and bass in each sixteenth, SILENT for a rest."""

VOICE_RANGES = {"Soprano": (60, 79), "Alto": (55, 74), "Tenor": (48, 67), "Bass": (40, 62)}
"""C4 to G5, G3 to D5, C3 to G4 and E2 to D4, as textbooks of four-part writing give them."""
VOICES = tuple(VOICE_RANGES)
N_VOICES = len(VOICES)
LOWEST, HIGHEST = 36, 81
REST = HIGHEST - LOWEST + 1
SYMBOLS = (*(f"pitch_{pitch}" for pitch in range(LOWEST, HIGHEST + 1)), "rest")
SILENT = -1

STEPS_PER_QUARTER = 4
STEPS_PER_BAR = 16
