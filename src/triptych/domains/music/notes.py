"""Notes of a performance, and how a MIDI file becomes notes.

Rules, in the order in which `notes_of` applies them:

1. Drums are left out. All other instruments are played on one piano.
2. A release while the sustain pedal is down moves to the pedal-up, or to the end of the piece. The
   pedal acts on all tracks of its channel.
3. One string per key. Notes of one pitch whose onsets round to the same 10 ms are one note: the
   first onset, the last release, the largest velocity. A note ends at the latest at the next onset
   of its pitch. No note is shorter than 10 ms, or than the time to that next onset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.midi import ParsedMidi

STEPS_PER_SECOND = 100
"""Steps of the time grid, 10 ms each."""


@dataclass(frozen=True)
class Notes:
    """Notes of a performance in the order of their onsets; four arrays of one length."""

    pitch: NDArray[np.int64]
    """MIDI pitches, 0 to 127."""
    onset: NDArray[np.float64]
    """Seconds."""
    release: NDArray[np.float64]
    """Seconds."""
    velocity: NDArray[np.int64]
    """1 to 127."""

    def __len__(self) -> int:
        return len(self.pitch)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, float, float, int]]) -> Notes:
        """Make notes of (pitch, onset, release, velocity)."""
        table = np.array(list(rows), dtype=np.float64).reshape(-1, 4)
        pitch, velocity = table[:, 0].astype(np.int64), table[:, 3].astype(np.int64)
        return cls(pitch, table[:, 1], table[:, 2], velocity)


def notes_of(midi: ParsedMidi) -> Notes:
    """Return the notes of a MIDI file as they sound, by rules 1 to 3, in exact seconds."""
    parts = [part for part in midi.parts if not part.is_drum]
    notes = [note for part in parts for note in part.notes]
    end = max(
        [note.release for note in notes] + [tick for part in parts for tick, _ in part.pedal],
        default=0,
    )
    releases: list[int] = []
    for part in parts:
        # For each pedal movement, the tick of the next pedal-up, or the end of the piece.
        next_up = [end]
        for tick, is_down in reversed(part.pedal):
            next_up.append(next_up[-1] if is_down else tick)
        next_up.reverse()
        ticks = [tick for tick, _ in part.pedal]
        for note in part.notes:
            # A pedal that goes down at the very tick of the release still holds the note.
            latest = bisect_right(ticks, note.release) - 1
            held = latest >= 0 and part.pedal[latest][1]
            releases.append(next_up[latest] if held else note.release)
    return settle(
        Notes(
            np.array([note.pitch for note in notes], dtype=np.int64),
            midi.seconds([note.onset for note in notes]),
            midi.seconds(releases),
            np.array([note.velocity for note in notes], dtype=np.int64),
        )
    )


def settle(notes: Notes) -> Notes:
    """Apply rule 3, one string per key, and order the notes; settled notes come back unchanged."""
    if not len(notes):
        return notes
    steps = to_steps(notes.onset)
    order = np.lexsort((notes.onset, steps, notes.pitch))
    pitch, steps, onset = notes.pitch[order], steps[order], notes.onset[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (pitch[1:] != pitch[:-1]) | (steps[1:] != steps[:-1])
    starts = np.flatnonzero(first)
    pitch, onset = pitch[starts], onset[starts]
    release = np.maximum.reduceat(notes.release[order], starts)
    velocity = np.maximum.reduceat(notes.velocity[order], starts)
    release = np.maximum(release, onset + 1 / STEPS_PER_SECOND)
    repeated = np.flatnonzero(pitch[1:] == pitch[:-1])
    release[repeated] = np.minimum(release[repeated], onset[repeated + 1])
    order = np.lexsort((pitch, onset))
    return Notes(pitch[order], onset[order], release[order], velocity[order])


def stretch(notes: Notes, factor: float) -> Notes:
    """Multiply all times; a factor of 1 returns the notes unchanged."""
    if factor == 1:
        return notes
    # Onsets that come closer may round to one step, so rule 3 is applied again.
    return settle(replace(notes, onset=notes.onset * factor, release=notes.release * factor))


def to_steps(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round times to the absolute grid of 10 ms."""
    return np.floor(np.asarray(seconds) * STEPS_PER_SECOND + 0.5).astype(np.int64)
