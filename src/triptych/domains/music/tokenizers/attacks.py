"""Tokenizer of four-part chorales that tells a repeated note from a held one.

The grid is that of `ChoraleTokenizer`. 93 symbols: ids 0 to 45 begin a note of the pitches 36 to
81, ids 46 to 91 hold such a note for one more sixteenth, id 92 is a rest. A held note has an id for
each pitch, so that a transposition moves it and attention to pitches (`PitchTime` with
`ids_per_pitch: 2`) reads it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.notes import N_PITCHES, SILENT, Ids
from triptych.domains.music.tokenizers.chorales import (
    HIGHEST,
    LOWEST,
    REST,
    SYMBOLS,
    ChoraleTokenizer,
    Grid,
)
from triptych.domains.music.tokenizers.voices import N_VOICES

N_KNOWN = HIGHEST - LOWEST + 1
"""Number of pitches, and distance of the ids of a pitch that begins and of one that is held."""
HELD = N_PITCHES
"""Added to the pitch of a held note in the content that is encoded."""


@dataclass(frozen=True)
class AttackTokenizer(ChoraleTokenizer):
    """Four-part chorales with attacks; content is a `Grid` with HELD added where a note is held."""

    name = "chorales with attacks"
    content = "grids of four voices with attacks"
    symbols = (
        *SYMBOLS[:N_KNOWN],
        *(f"held_{pitch}" for pitch in range(LOWEST, HIGHEST + 1)),
        "rest",
    )
    id_pitches = np.append(np.tile(np.arange(LOWEST, HIGHEST + 1), 2), SILENT)  # [V]
    rest = 2 * N_KNOWN

    def content_of(self, grid: Grid, struck: NDArray[np.bool_]) -> Grid:
        before = np.concatenate([np.full_like(grid[:1], SILENT), grid[:-1]])  # [T, 4]
        is_held = (grid != SILENT) & (grid == before) & ~struck  # [T, 4]
        return np.where(is_held, grid + HELD, grid)

    def encode(self, content: Grid) -> Ids:
        is_held = content >= HELD
        ids = super().encode(content - HELD * is_held)  # [4 T]
        return np.where(ids == REST, self.rest, ids + N_KNOWN * is_held.reshape(-1))

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        begins: NDArray[np.bool_] = ids < N_KNOWN
        return begins

    def grammar(
        self, batch: int, *, seconds: float | None, n_prompt: int, start: int = 0
    ) -> LogitsConstraint | None:
        return HeldNotes(self.id_pitches)


class HeldNotes:
    """Forbids to hold a pitch that the voice did not sing in the sixteenth before.

    pitches: MIDI pitch of each id, SILENT for a rest: [V].
    """

    def __init__(self, pitches: Ids) -> None:
        self.pitches = torch.from_numpy(pitches)
        self.held = torch.where(torch.arange(len(pitches)) < N_KNOWN, SILENT, self.pitches)  # [V]

    def __call__(self, values: Tensor) -> Tensor:
        """Mark the ids that may not come next, bool [B, V]; values: all ids so far, [B, t]."""
        self.pitches, self.held = self.pitches.to(values.device), self.held.to(values.device)
        sung = values.new_full((len(values), 1), SILENT)  # [B, 1]
        if values.shape[1] >= N_VOICES:
            sung = self.pitches[values[:, -N_VOICES, None]]  # [B, 1]
        return (self.held != SILENT) & (self.held != sung)  # [B, V]
