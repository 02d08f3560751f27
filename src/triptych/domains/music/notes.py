"""The note table: notes as columns, scores, and conversions between units of time.

`performance` applies these rules, in this order:

1. Drums are left out. All other instruments are played on one piano.
2. A release while the sustain pedal is down moves to the pedal-up, or to the end of the piece. The
   pedal acts on all tracks of its channel.
3. One string per key. Notes of one pitch whose onsets round to the same 10 ms are one note: the
   first onset, the last release, the largest velocity. A note ends at the latest at the next onset
   of its pitch. No note is shorter than 10 ms, or than the time to that next onset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int64]

N_PITCHES = 128
SILENT = -1
"""In place of a pitch, for a rest."""
STEPS_PER_SECOND = 100
"""Steps of the time grid of performances, 10 ms each."""
DEFAULT_TEMPO = 500_000
"""Microseconds per quarter note before the first tempo event."""
DRUMS = -1
"""Program of the drums, which MIDI files mark by their channel."""
FRAME = ("tempos", "time_signatures", "key_signatures", "chords", "lyrics")
"""Fields of a score that hold its frame, lists of (tick, ...)."""


@dataclass(frozen=True)
class Notes:
    """Notes as columns of one length.

    The holder of a table states the unit of its times: ticks in a `Score`, seconds in a
    performance, steps of a grid for statistics.
    """

    pitch: Ids
    """MIDI pitches, 0 to 127."""
    onset: NDArray[Any]
    release: NDArray[Any]
    velocity: Ids
    """1 to 127."""
    part: Ids
    """Index of the part that plays the note."""
    program: Ids
    """General MIDI program at the onset, 0 to 127, or DRUMS."""

    @classmethod
    def of(cls, rows: Iterable[Sequence[float]]) -> Notes:
        """Make notes of (pitch, onset, release, velocity), with a part and a program or without."""
        table = np.array([(*row, 0, 0)[:6] for row in rows] or np.empty((0, 6), dtype=np.int64))
        pitch, *_, velocity, part, program = table.T.astype(np.int64)
        return cls(pitch, table[:, 1], table[:, 2], velocity, part, program)

    def __len__(self) -> int:
        return len(self.pitch)

    def __getitem__(self, rows: NDArray[Any] | slice) -> Notes:
        """Return some notes, by a mask, by their indices or by a slice."""
        return Notes(*(getattr(self, field.name)[rows] for field in fields(self)))

    def rows(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Return the numbers in some columns, note by note."""
        return zip(*(getattr(self, name).tolist() for name in columns), strict=True)

    def sorted(self, *columns: str) -> Notes:
        """Return the notes by the first of some columns, then by the second, and so on."""
        return self[np.lexsort([getattr(self, name) for name in reversed(columns)])]

    def with_times(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Notes:
        """Return the notes with changed onsets and releases."""
        return replace(self, onset=change(self.onset), release=change(self.release))

    @property
    def pitched(self) -> Notes:
        """All notes but drums."""
        return self[self.program != DRUMS]


@dataclass(frozen=True)
class Part:
    """What one channel of a MIDI file plays in one track, or a part of a score."""

    name: str
    """Name of the track, or empty."""
    is_drum: bool
    pedal: Sequence[tuple[int, bool]] = ()
    """(tick, pedal is down) of the sustain pedal's movements on the channel, in all tracks that
    share it, by tick."""
    messages: Sequence[tuple[int, bytes]] = ()
    """(tick, message of MIDI for channel 1) of its other controllers, bends and pressures, and of
    kits of drums, by tick."""

    def up_to(self, tick: int) -> Part:
        """Return the part with what its channel says before a tick."""
        pedal = [row for row in self.pedal if row[0] < tick]
        return replace(self, pedal=pedal, messages=[row for row in self.messages if row[0] < tick])


@dataclass(frozen=True)
class Score:
    """Music of a file, with its tempo map and its meters; times in ticks."""

    name: str
    """Name of the file, for error messages."""
    parts: list[Part]
    """Of MIDI files those with at least one note."""
    notes: Notes
    """By part, onset, release and pitch; notes of one part and pitch do not overlap."""
    ticks_per_quarter: int
    last_tick: int
    """End of the piece: of its last note, or of a rest after it."""
    tempos: list[tuple[int, int]]
    """(tick, microseconds per quarter note) of all tempo events, by tick."""
    time_signatures: list[tuple[int, int, int]]
    """(tick, numerator, denominator) of all time signatures, by tick."""
    key_signatures: Sequence[tuple[int, int, bool]] = ()
    """(tick, sharps, or flats as a negative number, is minor) of all key signatures, by tick."""
    chords: Sequence[tuple[int, str]] = ()
    """(tick, chord symbol as the file writes it) of all chord symbols, by tick."""
    left_out: Sequence[str] = ()
    """About each place of the file that is left out: damage, and grace notes."""
    lyrics: Sequence[tuple[int, str]] = ()
    """(tick, text) of all lyrics, by tick."""
    credits: Sequence[tuple[str, str]] = ()
    """What a MusicXML file says of the piece: its `title`, and its creators by their role."""

    def seconds(self, ticks: Sequence[int] | Ids) -> NDArray[np.float64]:
        """Convert ticks to seconds by the tempo map."""
        at = np.asarray(ticks, dtype=np.float64)
        changes, tempos = np.array([(0, DEFAULT_TEMPO), *self.tempos], dtype=np.float64).T
        per_tick = tempos / 1e6 / self.ticks_per_quarter  # seconds
        starts = np.concatenate([[0.0], np.cumsum(np.diff(changes) * per_tick[:-1])])  # seconds
        section = np.searchsorted(changes, at, side="right") - 1
        seconds: NDArray[np.float64] = starts[section] + (at - changes[section]) * per_tick[section]
        return seconds

    def ticks(self, seconds: NDArray[np.float64]) -> Ids:
        """Convert seconds to the nearest ticks by the tempo map."""
        changes, tempos = np.array([(0, DEFAULT_TEMPO), *self.tempos], dtype=np.float64).T
        starts = self.seconds(changes.astype(np.int64))
        at = np.asarray(seconds, dtype=np.float64)
        section = np.searchsorted(starts, at, side="right") - 1
        per_tick = tempos[section] / 1e6 / self.ticks_per_quarter  # seconds
        ticks: Ids = np.rint(changes[section] + (at - starts[section]) / per_tick).astype(np.int64)
        return ticks

    def bars(self) -> Ids:
        """Return the ticks at which bars begin, and the end of the last one.

        A time signature begins a bar where it stands; the bar before it may be shorter.
        """
        end = max(1, self.last_tick)
        changes = [(0, 4, 4), *(change for change in self.time_signatures if change[0] < end)]
        starts: list[int] = []
        for (start, count, unit), (stop, *_) in pairwise([*changes, (end, 0, 0)]):
            length = max(1, round(4 * count * self.ticks_per_quarter / unit))
            starts += range(start, stop, length)
        return np.array([*starts, starts[-1] + length], dtype=np.int64)

    def at_resolution(self, ticks_per_quarter: int) -> Score:
        """Return the same music with other ticks."""

        def moved(ticks: Any) -> Any:
            return np.rint(ticks * ticks_per_quarter / self.ticks_per_quarter).astype(np.int64)

        def rows(changes: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
            return [(int(moved(tick)), *what) for tick, *what in changes]

        frame: dict[str, Any] = {name: rows(getattr(self, name)) for name in FRAME}
        return replace(
            self,
            parts=[
                replace(part, pedal=rows(part.pedal), messages=rows(part.messages))
                for part in self.parts
            ],
            notes=self.notes.with_times(moved),
            ticks_per_quarter=ticks_per_quarter,
            last_tick=int(moved(self.last_tick)),
            **frame,
        )

    @property
    def duration(self) -> float:
        """End of the piece, in seconds."""
        return float(self.seconds([self.last_tick])[0])

    @property
    def notes_in_seconds(self) -> Notes:
        """The same notes, times in seconds."""
        return self.notes.with_times(self.seconds)


def performance(score: Score) -> Notes:
    """Return the notes of a score as they sound, by rules 1 to 3, in exact seconds."""
    notes = score.notes.pitched
    pitched = {number: part.pedal for number, part in enumerate(score.parts) if not part.is_drum}
    movements = [tick for pedal in pitched.values() for tick, _ in pedal]
    end = max([int(notes.release.max(initial=0)), *movements])
    release = notes.release.copy()
    for number, pedal in pitched.items():
        own = notes.part == number
        # A pedal that goes down at the very tick of the release still holds the note.
        moved = np.searchsorted([tick for tick, _ in pedal], release[own], side="right")
        held = np.array([False, *(is_down for _, is_down in pedal)])[moved]
        ups = np.array([tick for tick, is_down in pedal if not is_down] + [end])
        next_up = ups[np.searchsorted(ups[:-1], release[own], side="right")]
        release[own] = np.where(held, next_up, release[own])
    nothing = np.zeros_like(notes.pitch)
    sounding = replace(notes, release=release, part=nothing, program=nothing)
    return settle(sounding.with_times(score.seconds))


def settle(notes: Notes) -> Notes:
    """Apply rule 3, one string per key, to notes in seconds; order them by onset and pitch.

    Settled notes come back unchanged.
    """
    kept = one_string_per_key(notes, to_steps(notes.onset), least=1 / STEPS_PER_SECOND)
    return kept.sorted("onset", "pitch")


def one_string_per_key(notes: Notes, steps: Ids, least: float) -> Notes:
    """Join the notes of a part and pitch whose onsets have one step; end each at the next onset.

    least: shortest duration, in the unit of the notes. The result is by part, pitch and onset.
    """
    if not len(notes):
        return notes
    order = np.lexsort((notes.onset, steps, notes.pitch, notes.part))
    notes, steps = notes[order], steps[order]

    def changes(table: Notes) -> NDArray[np.bool_]:
        """Whether a note has another key than the one before."""
        key = 128 * table.part + table.pitch
        return np.append(True, key[1:] != key[:-1])

    starts = np.flatnonzero(changes(notes) | np.append(True, steps[1:] != steps[:-1]))
    kept = notes[starts]
    release = np.maximum.reduceat(notes.release, starts)
    release = np.maximum(release, kept.onset + least)
    repeated = np.flatnonzero(~changes(kept)[1:])
    release[repeated] = np.minimum(release[repeated], kept.onset[repeated + 1])
    velocity = np.maximum.reduceat(notes.velocity, starts)
    return replace(kept, release=release, velocity=velocity)


def to_steps(seconds: NDArray[np.float64]) -> Ids:
    """Round times to the absolute grid of 10 ms."""
    return np.floor(np.asarray(seconds) * STEPS_PER_SECOND + 0.5).astype(np.int64)


def latest(marks: NDArray[np.bool_]) -> Ids:
    """Return the index of the latest mark up to each place, -1 before the first."""
    places: Ids = np.maximum.accumulate(np.where(marks, np.arange(len(marks)), -1))
    return places


def on_grid(notes: Notes, steps: float, per: int = 1) -> Notes:
    """Return notes without drums in whole steps, by onset, pitch and part.

    steps: number of steps in `per` units of the notes' times. Every note lasts at least one step.
    """
    notes = notes.pitched.with_times(lambda times: np.rint(times * steps / per).astype(np.int64))
    notes = replace(notes, release=np.maximum(notes.release, notes.onset + 1))
    return notes.sorted("onset", "pitch", "part")


def piece_length(notes: Notes) -> int:
    """Return the length of a piece up to its last release, in steps."""
    return int(notes.release.max(initial=0))


def piano_roll(notes: Notes) -> NDArray[np.bool_]:
    """Return which pitches sound in each step, [T, 128]."""
    roll = np.zeros((piece_length(notes), N_PITCHES), dtype=bool)
    for pitch, start, stop in notes.rows("pitch", "onset", "release"):
        roll[start:stop, pitch] = True
    return roll


def voice_grid(notes: Notes, n_voices: int) -> Ids:
    """Return the pitch of each voice in each step, SILENT for a rest, [T, V]."""
    grid = np.full((piece_length(notes), n_voices), SILENT, dtype=np.int64)
    for pitch, start, stop, voice in notes.rows("pitch", "onset", "release", "part"):
        grid[start:stop, voice] = pitch
    return grid
