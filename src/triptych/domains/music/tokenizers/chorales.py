"""Tokenizer of four-part chorales: a grid of sixteenths, four tokens per sixteenth.

Serialised as in "Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.1): soprano,
alto, tenor and bass of the first sixteenth, then of the second, and so on. 47 symbols: ids 0 to 45
are the pitches 36 to 81, id 46 is a rest. There is no END.

The grid holds what sounds, not what is struck: a held and a repeated pitch are equal, as in the
public JSB files. Equal pitches in a row become one note of a MIDI file; `attacks.py` has another
tokenizer, which tells them apart.

All constraints permit a rest, so that they leave a token in every row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.midi import instruments, new_midi
from triptych.domains.music.notes import (
    SILENT,
    Ids,
    Notes,
    Score,
    on_grid,
    piece_length,
    voice_grid,
)
from triptych.domains.music.tokenizers.base import MELODY_REST, GivenPiece, MelodicTokenizer
from triptych.errors import UserError

if TYPE_CHECKING:
    import pretty_midi

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

QUARTERS_PER_MINUTE = 75.0
"""Tempo of sampled chorales; a sixteenth is then 0.2 s, a whole number of ticks."""
SECONDS_PER_STEP = 60 / QUARTERS_PER_MINUTE / STEPS_PER_QUARTER
CHOIR_PROGRAM = 52  # General MIDI "Choir Aahs", counted from 0
VELOCITY = 80


@dataclass(frozen=True)
class ChoraleTokenizer(MelodicTokenizer):
    """Four-part chorales on a grid of sixteenths; content is a `Grid`."""

    name = "chorales"
    content = "grids of four voices"
    constraint_options = ("scale", "ranges", "no_parallels")
    symbols = SYMBOLS
    id_pitches = np.append(np.arange(LOWEST, HIGHEST + 1), SILENT)  # [V]
    rest = REST
    pitch_range = LOWEST, HIGHEST
    bar = STEPS_PER_BAR * N_VOICES
    voice_cycles = ((1, N_VOICES),)
    # Sixteenth in the quarter, and in a bar of four quarters counted from the piece's start.
    meter_cycles = ((N_VOICES, STEPS_PER_QUARTER), (N_VOICES, STEPS_PER_BAR))
    count_contexts: ClassVar = {
        "voice and previous pitch": (N_VOICES, voice_cycles),
        "voice, previous pitch and 16th in the quarter": (
            N_VOICES,
            (*voice_cycles, meter_cycles[0]),
        ),
    }
    tokens_per_unit = N_VOICES
    seconds_per_unit = SECONDS_PER_STEP
    unit = "sixteenths"
    steps_per_second = 1 / SECONDS_PER_STEP
    steps_per_beat = STEPS_PER_QUARTER
    steps_per_bar = STEPS_PER_BAR
    voice_ranges = VOICE_RANGES
    melody_step = N_VOICES
    seconds_per_melody_step = SECONDS_PER_STEP

    def content_of(self, grid: Grid, struck: NDArray[np.bool_]) -> Grid:
        """Return what `encode` takes; struck: bool [T, 4], True where a note begins."""
        return grid

    def encode(self, content: Grid) -> Ids:
        known = (content == SILENT) | ((content >= LOWEST) & (content <= HIGHEST))
        if content.shape[1:] != (N_VOICES,) or not known.all():
            raise ValueError(f"a chorale needs steps of four pitches from {LOWEST} to {HIGHEST}")
        return np.where(content == SILENT, REST, content - LOWEST).reshape(-1)  # [4 T]

    def decode(self, ids: Ids) -> Grid:
        """Read ids as a grid, [4 T] -> [T, 4]; voices that are missing in the last step rest."""
        return self.id_pitches[self._whole(ids)].reshape(-1, N_VOICES)  # [T, 4]

    def _whole(self, ids: Ids) -> Ids:
        return np.pad(ids, (0, -len(ids) % N_VOICES), constant_values=self.rest)  # [4 T]

    def to_midi(self, ids: Ids, struck: NDArray[np.bool_] | None = None) -> pretty_midi.PrettyMIDI:
        """Return the music of any ids with one instrument per voice, from soprano to bass.

        struck: bool [T, 4], True where a note begins even if its pitch sounded before.
        """
        ids = self._whole(ids)
        grid = self.decode(ids)  # [T, 4]
        begins = self.onsets(ids).reshape(grid.shape) | (np.diff(grid, axis=0, prepend=SILENT) != 0)
        if struck is not None:
            begins |= struck
        rows = []
        for voice, line in enumerate(grid.T):
            # A note ends where the voice takes another pitch or rests, and at the end of the piece.
            changes = np.flatnonzero(begins[:, voice])
            for start, stop in pairwise(np.unique([0, *changes, len(line)])):
                if line[start] != SILENT:
                    span = start * SECONDS_PER_STEP, stop * SECONDS_PER_STEP
                    rows.append((line[start], *span, VELOCITY, voice))
        parts = instruments(Notes.of(rows), [(name, CHOIR_PROGRAM) for name in VOICES])
        return new_midi(parts, QUARTERS_PER_MINUTE)

    def from_midi(self, score: Score) -> Grid:
        return self.content_of(*self._read(score))

    def kept(self, ids: Ids, keep: str, name: str = "the piece") -> NDArray[np.bool_]:
        """See `MusicTokenizer.kept`; a bar has 16 sixteenths from the start of the piece."""
        grid = self.decode(ids)  # [T, 4]
        known = np.zeros(grid.shape, dtype=bool)
        n_bars = -(-len(grid) // STEPS_PER_BAR)
        for word in _words(keep):
            if bars := re.fullmatch(r"bars:(\d+)(?:-(\d+))?", word):
                first, last = int(bars[1]), int(bars[2] or bars[1])
                if not 1 <= first <= last <= n_bars:
                    raise UserError(
                        f"keep names {word!r}; expected bars of four quarters from 1 to {n_bars}, "
                        f"those of {name}"
                    )
                known[(first - 1) * STEPS_PER_BAR : last * STEPS_PER_BAR] = True
                continue
            voice = _voice(word)
            if (grid[:, voice] == SILENT).all():
                raise UserError(f"{name} has no notes of the {word} to keep")
            known[:, voice] = True
        if known.all():
            raise UserError(f"keep is {keep!r}: nothing of {name} is left to sample")
        return known.reshape(-1)[: len(ids)]

    def given(self, score: Score, keep: str) -> GivenPiece:
        """See `MusicTokenizer.given`; one note at a time is the voice that `keep` names alone."""
        grid, struck = self._read(score)
        words = _words(keep)
        if len(words) == 1 and not words[0].startswith("bars:") and (grid[:, 1:] == SILENT).all():
            voice = _voice(words[0])
            grid, struck = np.roll(grid, voice, axis=1), np.roll(struck, voice, axis=1)
        ids = self.encode(self.content_of(grid, struck))
        known = self.kept(ids, keep, score.name).reshape(-1, N_VOICES)  # [T, 4]

        def is_kept(instrument: int, seconds: float) -> bool:
            return bool(known[round(seconds / SECONDS_PER_STEP), instrument])

        to_midi = partial(self.to_midi, struck=struck & known)
        return GivenPiece(ids, known.reshape(-1), to_midi, is_kept)

    def _read(self, score: Score) -> tuple[Grid, NDArray[np.bool_]]:
        """Read a MIDI file; return what sounds at the start of each step, and where a note begins.

        Onsets and releases are rounded to whole sixteenths. Four parts of one voice each are the
        voices, as are fewer parts with the names that `to_midi` gives; four parts without them are
        ordered by their mean pitch. Otherwise the four highest pitches of each step are soprano,
        alto, tenor and bass from the top, and with fewer pitches the lower voices rest.

        Raises UserError for a file of drums alone and for a pitch without a symbol.
        """
        notes = score.notes.pitched
        if not len(notes):
            raise UserError(f"{score.name} holds no notes but drums; expected up to four voices")
        outside = notes.pitch[(notes.pitch < LOWEST) | (notes.pitch > HIGHEST)]
        if len(outside):
            raise UserError(
                f"{score.name} has the MIDI pitch {outside.min()}; this model sings from {LOWEST} "
                f"(C2) to {HIGHEST} (A5)"
            )
        notes = on_grid(notes, STEPS_PER_QUARTER, per=score.ticks_per_quarter)
        voices = _voices_of(score, notes)
        struck = np.zeros((piece_length(notes), N_VOICES), dtype=bool)
        if voices is not None:
            struck[notes.onset, voices] = True
            return voice_grid(replace(notes, part=voices), N_VOICES), struck
        grid = np.full(struck.shape, SILENT, dtype=np.int64)
        for step in range(len(grid)):
            sounding = (notes.onset <= step) & (step < notes.release)
            highest = np.unique(notes.pitch[sounding])[::-1][:N_VOICES]
            grid[step, : len(highest)] = highest
            struck[step, : len(highest)] = np.isin(highest, notes.pitch[notes.onset == step])
        return grid, struck

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        # Where a voice takes a new pitch.
        before = np.concatenate([np.full(N_VOICES, REST), ids])[: len(ids)]
        begins: NDArray[np.bool_] = (ids != REST) & (ids != before)
        return begins

    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        return (np.arange(len(ids)) // N_VOICES).astype(np.float64) * SECONDS_PER_STEP

    def melody(self, ids: Ids) -> Ids:
        soprano = ids[::N_VOICES]  # [T]
        pitches = np.where(soprano == self.rest, MELODY_REST, self.id_pitches[soprano])  # [T]
        return np.repeat(pitches, N_VOICES)

    @property
    def durations(self) -> Ids:
        return np.ones(self.vocabulary_size, dtype=np.int64)  # a quarter of a sixteenth each

    def melody_steps(self, length: int) -> int:
        return -(-length // N_VOICES)


def _words(keep: str) -> list[str]:
    return [word.strip().lower() for word in keep.split(",")]


def _voice(word: str) -> int:
    """Return the index of a voice; raises UserError for another word."""
    if word.capitalize() not in VOICES:
        voices = ", ".join(VOICES).lower()
        raise UserError(f"keep names {word!r}; expected {voices}, or bars such as bars:1-4")
    return VOICES.index(word.capitalize())


def _voices_of(score: Score, notes: Notes) -> Ids | None:
    """Return the voice of each note by the name of its part, or of four parts by their height.

    None where the parts are no voices: other names and another number, or two notes at a time.
    notes: in steps, by onset.
    """
    parts = np.unique(notes.part)
    voices = [VOICES.index(name) for n in parts if (name := score.parts[n].name) in VOICES]
    if len(set(voices)) < len(parts):  # a voice that rests throughout has no part
        if len(parts) != N_VOICES:
            return None
        heights = [-float(np.mean(notes.pitch[notes.part == part])) for part in parts]
        voices = np.argsort(np.argsort(heights)).tolist()
    for part in parts:
        own = notes[notes.part == part]
        if (own.release[:-1] > own.onset[1:]).any():
            return None
    return np.array(voices)[np.searchsorted(parts, notes.part)]
