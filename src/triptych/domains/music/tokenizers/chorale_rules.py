"""Chorales as a grid of four voices: their ids, and constraints on sampled ones.

A step has four tokens, from soprano to bass. All constraints permit a rest, so that they leave a
token in every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.music.statistics import PERFECT

Grid: TypeAlias = NDArray[np.int64]
"""[T, 4]: MIDI pitch of soprano, alto, tenor and bass in each sixteenth, SILENT for a rest."""

VOICE_RANGES = {"Soprano": (60, 79), "Alto": (55, 74), "Tenor": (48, 67), "Bass": (40, 62)}
"""C4 to G5, G3 to D5, C3 to G4 and E2 to D4, as textbooks of four-part writing give them."""
VOICES = tuple(VOICE_RANGES)
N_VOICES = len(VOICES)
LOWEST, HIGHEST = 36, 81
REST = HIGHEST - LOWEST + 1
SYMBOLS = (*(f"pitch_{pitch}" for pitch in range(LOWEST, HIGHEST + 1)), "rest")

STEPS_PER_QUARTER = 4
STEPS_PER_BAR = 16


class VoicePitches:
    """Forbids pitches that a voice must not sing.

    permitted: the pitches of each voice. A held pitch outside of them, from a primer, ends.
    """

    def __init__(self, permitted: Sequence[set[int]]) -> None:
        self.forbidden = torch.ones(len(permitted), len(SYMBOLS), dtype=torch.bool)  # [voices, V]
        self.forbidden[:, REST] = False
        for voice, pitches in enumerate(permitted):
            self.forbidden[voice, [pitch - LOWEST for pitch in pitches]] = False

    def __call__(self, values: Tensor) -> Tensor:
        self.forbidden = self.forbidden.to(values.device)
        return self.forbidden[values.shape[1] % N_VOICES].expand(len(values), -1)  # [B, V]


class NoParallels:
    """Forbids parallel fifths and octaves as `statistics.voice_leading` defines them.

    A voice may not move to a pitch that completes a parallel with a voice above it, which has moved
    in the same step. So the voices further down give way.
    """

    def __call__(self, values: Tensor) -> Tensor:
        batch, length = values.shape
        voice = length % N_VOICES
        begin = length - voice  # of this step
        forbidden = values.new_zeros(batch, len(SYMBOLS), dtype=torch.bool)  # [B, V]
        if begin == 0 or voice == 0:
            return forbidden
        above = values[:, begin:]  # [B, voice]
        above_before = values[:, begin - N_VOICES : begin - N_VOICES + voice]  # [B, voice]
        before = values[:, begin - N_VOICES + voice, None]  # [B, 1]
        new = torch.arange(len(SYMBOLS), device=values.device)  # [V]
        motion = _motion(above_before, above).unsqueeze(2) * _motion(before, new).unsqueeze(1)
        for interval in PERFECT.values():
            was = ((above_before - before) % 12 == interval).unsqueeze(2)  # [B, voice, 1]
            is_now = (above.unsqueeze(2) - new) % 12 == interval  # [B, voice, V]
            forbidden = forbidden | ((motion > 0) & was & is_now).any(1)
        return forbidden


def _motion(before: Tensor, after: Tensor) -> Tensor:
    """Return the difference of two ids, 0 where one of them is a rest."""
    return torch.where((before == REST) | (after == REST), 0, after - before)
