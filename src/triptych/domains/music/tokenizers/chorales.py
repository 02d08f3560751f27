"""Tokenizer of four-part chorales: a grid of sixteenths, four tokens per sixteenth.

Serialised as in "Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.1): soprano,
alto, tenor and bass of the first sixteenth, then of the second, and so on. 47 symbols: ids 0 to 45
are the pitches 36 to 81, id 46 is a rest. There is no END.

The grid holds what sounds, not what is struck: a held and a repeated pitch are equal, as in the
public JSB files. Equal pitches in a row become one note of a MIDI file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.music.augmentation import Augmentation, draw, possible_shifts
from triptych.domains.music.midi import ParsedMidi, new_midi
from triptych.domains.music.tokenizers.base import Ids, MusicTokenizer
from triptych.errors import UserError

if TYPE_CHECKING:
    import pretty_midi

Grid: TypeAlias = NDArray[np.int64]
"""[T, 4]: MIDI pitch of soprano, alto, tenor and bass in each sixteenth, SILENT for a rest."""

VOICES = ("Soprano", "Alto", "Tenor", "Bass")
N_VOICES = len(VOICES)
LOWEST, HIGHEST = 36, 81
REST = HIGHEST - LOWEST + 1
SYMBOLS = (*(f"pitch_{pitch}" for pitch in range(LOWEST, HIGHEST + 1)), "rest")
SILENT = -1

STEPS_PER_QUARTER = 4
STEPS_PER_BAR = 16

QUARTERS_PER_MINUTE = 75.0
"""Tempo of sampled chorales; a sixteenth is then 0.2 s, a whole number of ticks."""
SECONDS_PER_STEP = 60 / QUARTERS_PER_MINUTE / STEPS_PER_QUARTER
CHOIR_PROGRAM = 52  # General MIDI "Choir Aahs", counted from 0
VELOCITY = 80


def in_range(grid: Grid) -> bool:
    """Return whether every pitch has a symbol."""
    sounding = grid[grid != SILENT]
    return bool(((sounding >= LOWEST) & (sounding <= HIGHEST)).all())


def encode_grid(grid: Grid) -> Ids:
    """Write a grid as ids, [T, 4] -> [4 T]. Raises ValueError for a pitch outside 36 to 81."""
    if not in_range(grid):
        raise ValueError(f"the pitches of a chorale are from {LOWEST} to {HIGHEST}")
    return np.where(grid == SILENT, REST, grid - LOWEST).reshape(-1)  # [4 T]


def decode_grid(ids: Ids) -> Grid:
    """Read ids as a grid, [4 T] -> [T, 4]; voices that are missing in the last step rest.

    Raises ValueError for a number that is no id.
    """
    ids = np.asarray(ids, dtype=np.int64)
    if len(ids) and not (ids.min() >= 0 and ids.max() < len(SYMBOLS)):
        raise ValueError(f"ids of chorales are from 0 to {len(SYMBOLS) - 1}")
    ids = np.pad(ids, (0, -len(ids) % N_VOICES), constant_values=REST)  # [4 T]
    return np.where(ids == REST, SILENT, ids + LOWEST).reshape(-1, N_VOICES)  # [T, 4]


def onsets(grid: Grid) -> NDArray[np.bool_]:
    """Mark where a note begins, [T, 4]: a pitch that differs from the voice's previous one."""
    before = np.vstack([np.full((1, N_VOICES), SILENT), grid[:-1]])
    begins: NDArray[np.bool_] = (grid != SILENT) & (grid != before)
    return begins


def grid_to_midi(grid: Grid) -> pretty_midi.PrettyMIDI:
    """Return a piece with one instrument per voice, from soprano to bass."""
    import pretty_midi

    midi = new_midi(QUARTERS_PER_MINUTE)
    starts = onsets(grid)
    for voice, name in enumerate(VOICES):
        instrument = pretty_midi.Instrument(program=CHOIR_PROGRAM, name=name)
        line = grid[:, voice]
        # A note ends where the voice takes another pitch or rests, and at the end of the piece.
        breaks = np.append(np.flatnonzero(np.diff(line)) + 1, len(line))
        for start in np.flatnonzero(starts[:, voice]):
            stop = breaks[np.searchsorted(breaks, start, side="right")]
            span = start * SECONDS_PER_STEP, stop * SECONDS_PER_STEP
            instrument.notes.append(pretty_midi.Note(VELOCITY, int(line[start]), *span))
        midi.instruments.append(instrument)
    return midi


def midi_to_grid(midi: ParsedMidi, *, name: str) -> Grid:
    """Read a MIDI file as a grid of sixteenths; a step holds the pitches that sound at its start.

    Onsets and releases are rounded to whole sixteenths. Four parts of one voice each are the
    voices, as are fewer parts with the names that `grid_to_midi` gives; four parts without them
    are ordered by their mean pitch. Otherwise the four highest pitches of each step are soprano,
    alto, tenor and bass from the top, and with fewer pitches the lower voices rest.

    name: file name for error messages. Raises UserError for a file of drums alone and for a pitch
    outside 36 to 81.
    """
    parts = [part for part in midi.parts if not part.is_drum]
    if not parts:
        raise UserError(f"{name} holds no notes but drums; expected up to four voices")
    spans = []  # (part, first step, step after the last, pitch)
    for number, part in enumerate(parts):
        for note in part.notes:
            first, stop = (
                round(tick * STEPS_PER_QUARTER / midi.ticks_per_quarter)
                for tick in (note.onset, note.release)
            )
            spans.append((number, first, max(stop, first + 1), note.pitch))
    outside = [pitch for *_, pitch in spans if not LOWEST <= pitch <= HIGHEST]
    if outside:
        raise UserError(
            f"{name} has the MIDI pitch {min(outside)}; this model sings from {LOWEST} (C2) to "
            f"{HIGHEST} (A5)"
        )
    length = max(stop for _, _, stop, _ in spans)
    named = [VOICES.index(part.name) for part in parts if part.name in VOICES]
    if len(set(named)) == len(parts):  # a voice that rests throughout has no part
        columns = named
    elif len(parts) == N_VOICES:
        heights = [-float(np.mean([note.pitch for note in part.notes])) for part in parts]
        columns = np.argsort(np.argsort(heights)).tolist()
    else:
        columns = []
    grid = np.full((length, N_VOICES), SILENT, dtype=np.int64)
    if columns:
        cells = np.zeros((length, N_VOICES), dtype=np.int64)  # pitches per step and voice
        for number, first, stop, pitch in spans:
            grid[first:stop, columns[number]] = pitch
            cells[first:stop, columns[number]] += 1
        if cells.max() == 1:
            return grid
        grid[:] = SILENT
    for step in range(length):
        sounding = {pitch for _, first, stop, pitch in spans if first <= step < stop}
        highest = sorted(sounding, reverse=True)[:N_VOICES]
        grid[step, : len(highest)] = highest
    return grid


class ChoraleTokenizer(MusicTokenizer):
    """Four-part chorales on a grid of sixteenths; content is a `Grid`."""

    name = "chorales"
    symbols = SYMBOLS
    bar = STEPS_PER_BAR * N_VOICES
    voice_cycles = ((1, N_VOICES),)
    # Sixteenth in the quarter, and in a bar of four quarters counted from the piece's start.
    meter_cycles = ((N_VOICES, STEPS_PER_QUARTER), (N_VOICES, STEPS_PER_BAR))
    repeat_lag = N_VOICES  # a voice holds its pitch for most sixteenths

    def from_midi(self, midi: ParsedMidi, *, name: str) -> Grid:
        """Read a MIDI file as a grid; see `midi_to_grid`."""
        return midi_to_grid(midi, name=name)

    def encode(self, content: Grid) -> Ids:
        """Write a grid as ids; raises ValueError for a pitch without a symbol."""
        return encode_grid(content)

    def to_midi(self, ids: Ids) -> pretty_midi.PrettyMIDI:
        """Return the music of a grid, one instrument per voice."""
        return grid_to_midi(decode_grid(ids))

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        """Mark where a voice takes a new pitch."""
        return onsets(decode_grid(ids)).reshape(-1)[: len(ids)]

    def seconds_and_pitches(self, ids: Ids) -> tuple[NDArray[np.float64], Ids]:
        """Return the time of each token's sixteenth, and its pitch; rests have none."""
        seconds = (np.arange(len(ids)) // N_VOICES).astype(np.float64) * SECONDS_PER_STEP
        return seconds, decode_grid(ids).reshape(-1)[: len(ids)]

    def n_tokens(self, *, seconds: float | None, length: int | None) -> int:
        """Return four tokens per sixteenth; `length` counts sixteenths."""
        if length is None:
            assert seconds is not None
            length = max(1, round(seconds / SECONDS_PER_STEP))
        return length * N_VOICES

    def augment(self, content: Grid, settings: Augmentation, generator: torch.Generator) -> Grid:
        """Transpose the chorale."""
        sounding = content[content != SILENT]
        shifts = possible_shifts(sounding, most=settings.transpose, lowest=LOWEST, highest=HIGHEST)
        return np.where(content == SILENT, SILENT, content + draw(shifts, generator))
