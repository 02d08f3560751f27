"""Four-part chorales as a grid of 16ths, four tokens a step.

Serialised as in "Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.1): soprano,
alto, tenor and bass of the first 16th, then of the second, and so on. 47 symbols: ids 0 to 45 are
the pitches 36 to 81, id 46 is a rest. Padding is -1 (see data.py), no symbol. There is no END.

The grid says what sounds, not what is struck: a held and a repeated pitch look the same (so they do
in the public JSB files), and going back to MIDI, equal pitches in a row become one note.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import numpy as np
import pretty_midi
from numpy.typing import NDArray

from triptych.domains.music.midi import new_midi
from triptych.errors import UserError

Grid = NDArray[np.int64]
"""[T, 4]: MIDI pitch of soprano, alto, tenor and bass in each 16th, SILENT where a voice rests."""

VOICES = ("Soprano", "Alto", "Tenor", "Bass")
N_VOICES = len(VOICES)
LOWEST, HIGHEST = 36, 81
REST = HIGHEST - LOWEST + 1
VOCABULARY_SIZE = REST + 1
SILENT = -1

STEPS_PER_QUARTER = 4
STEPS_PER_BAR = 16
TOKENS_PER_BAR = STEPS_PER_BAR * N_VOICES

QUARTERS_PER_MINUTE = 75.0
"""A walking pace for singers; a 16th is then 0.2 s, a whole number of ticks."""
SECONDS_PER_STEP = 60 / QUARTERS_PER_MINUTE / STEPS_PER_QUARTER

CHOIR_PROGRAM = 52  # General MIDI "Choir Aahs", counted from 0
VELOCITY = 80


def vocabulary() -> list[str]:
    """Name all ids in their order."""
    return [f"pitch_{pitch}" for pitch in range(LOWEST, HIGHEST + 1)] + ["rest"]


def in_range(grid: Grid) -> bool:
    """Tell whether every pitch has a symbol."""
    sounding = grid[grid != SILENT]
    return bool(((sounding >= LOWEST) & (sounding <= HIGHEST)).all())


def encode_grid(grid: Grid) -> NDArray[np.int64]:
    """Write a grid as ids, [T, 4] -> [4 T]. Raises ValueError for a pitch outside 36 to 81."""
    if not in_range(grid):
        raise ValueError(f"A chorale's pitches go from {LOWEST} to {HIGHEST}.")
    return np.where(grid == SILENT, REST, grid - LOWEST).reshape(-1)  # [4 T]


def decode_grid(ids: NDArray[np.int64] | list[int]) -> Grid:
    """Read ids as a grid, [4 T] -> [T, 4]; a last step with voices missing is filled with rests."""
    table = np.asarray(ids, dtype=np.int64)
    if len(table) and not (table.min() >= 0 and table.max() < VOCABULARY_SIZE):
        raise ValueError(f"Chorale ids go from 0 to {VOCABULARY_SIZE - 1}.")
    table = np.pad(table, (0, -len(table) % N_VOICES), constant_values=REST)
    return np.where(table == REST, SILENT, table + LOWEST).reshape(-1, N_VOICES)  # [T, 4]


def onsets(grid: Grid) -> NDArray[np.bool_]:
    """Mark where a note begins, [T, 4]: a pitch that the voice did not have a 16th before."""
    before = np.vstack([np.full((1, N_VOICES), SILENT), grid[:-1]])
    return (grid != SILENT) & (grid != before)


def grid_to_midi(grid: Grid) -> pretty_midi.PrettyMIDI:
    """Give each voice an instrument of its own, in the order soprano to bass."""
    midi = new_midi(QUARTERS_PER_MINUTE)
    starts = onsets(grid)
    for voice, name in enumerate(VOICES):
        instrument = pretty_midi.Instrument(program=CHOIR_PROGRAM, name=name)
        line = grid[:, voice]
        # A note ends where the voice has another pitch, or none, or the piece is over.
        breaks = np.append(np.flatnonzero(np.diff(line)) + 1, len(line))
        for start in np.flatnonzero(starts[:, voice]):
            stop = breaks[np.searchsorted(breaks, start, side="right")]
            instrument.notes.append(
                pretty_midi.Note(
                    VELOCITY, int(line[start]), start * SECONDS_PER_STEP, stop * SECONDS_PER_STEP
                )
            )
        midi.instruments.append(instrument)
    return midi


def midi_to_grid(midi: pretty_midi.PrettyMIDI, *, name: str) -> Grid:
    """Read a piece as a grid of 16ths of its own tempo map; a step holds what sounds at its start.

    Instruments of one voice each keep their voices where they are called as `grid_to_midi` calls
    them, or are four (then from the highest on average to the lowest). Otherwise the highest notes
    of each step are soprano, alto, tenor and bass from the top; a fifth is left out, and with fewer
    than four the lower voices rest. Times are rounded to whole 16ths.

    name: what messages call the file. Raises UserError where nothing is pitched or a pitch lies
    outside 36 to 81.
    """
    parts = [i for i in midi.instruments if not i.is_drum and i.notes]
    spans = []  # (instrument, first step, step after the last, pitch)
    for number, part in enumerate(parts):
        for note in part.notes:
            first, stop = (
                round(midi.time_to_tick(time) * STEPS_PER_QUARTER / midi.resolution)
                for time in (note.start, note.end)
            )
            spans.append((number, first, max(stop, first + 1), note.pitch))
    if not spans:
        raise UserError(f"{name} holds no notes but drums; expected up to four voices.")
    outside = sorted({pitch for *_, pitch in spans if not LOWEST <= pitch <= HIGHEST})
    if outside:
        raise UserError(
            f"{name} has the MIDI pitch {outside[0]}; this model sings from {LOWEST} (C2) to "
            f"{HIGHEST} (A5)."
        )
    length = max(stop for _, _, stop, _ in spans)
    own = [VOICES.index(part.name) for part in parts if part.name in VOICES]
    called = len(set(own)) == len(parts)  # a voice that rests throughout has no instrument
    if called or len(parts) == N_VOICES:
        grid = np.full((length, N_VOICES), SILENT, dtype=np.int64)
        cells = np.zeros((length, N_VOICES), dtype=np.int64)
        for number, first, stop, pitch in spans:
            grid[first:stop, number] = pitch
            cells[first:stop, number] += 1
        if cells.max() == 1 and called:
            voices = np.full_like(grid, SILENT)
            voices[:, own] = grid[:, : len(own)]
            return voices
        if cells.max() == 1:
            by_height = np.argsort([-np.mean([n.pitch for n in part.notes]) for part in parts])
            return grid[:, by_height]
    grid = np.full((length, N_VOICES), SILENT, dtype=np.int64)
    for step in range(length):
        sounding = {pitch for _, first, stop, pitch in spans if first <= step < stop}
        top = sorted(sounding, reverse=True)[:N_VOICES]
        grid[step, : len(top)] = top
    return grid


def read_jsb(path: Path) -> dict[str, list[Grid]]:
    """Read the JSB chorales of Boulanger-Lewandowski (2012) in their public split.

    path: `Jsb16thSeparated.json.gz`, the splits "train", "valid" and "test" as lists of pieces,
    each a list of steps of four pitches, -1 where a voice is silent. Gives the splits "train",
    "validation" and "test" in the order of the file. Raises UserError for anything else.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            content = json.load(file)
        splits = {
            ours: [np.array(piece, dtype=np.int64) for piece in content[theirs]]
            for ours, theirs in (("train", "train"), ("validation", "valid"), ("test", "test"))
        }
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, EOFError, KeyError, TypeError, zlib.error) as error:
        raise UserError(
            f"{path} is not the JSB file of 16ths in separate voices ({error!r})."
        ) from error
    for split, pieces in splits.items():
        for number, grid in enumerate(pieces):
            if grid.ndim != 2 or grid.shape[1] != N_VOICES or not in_range(grid):
                raise UserError(
                    f"{path}: piece {number} of {split} is not a list of steps of four pitches "
                    f"from {LOWEST} to {HIGHEST} or -1."
                )
    return splits
