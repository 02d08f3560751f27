"""Ids of the events of performances, and the note events that they write."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.notes import N_PITCHES, Ids, Notes, latest, to_steps

N_SHIFTS = 100
N_VELOCITIES = 32

NOTE_ON = 0
NOTE_OFF = NOTE_ON + N_PITCHES
SHIFT = NOTE_OFF + N_PITCHES  # id SHIFT + n - 1 waits n steps of 10 ms
VELOCITY = SHIFT + N_SHIFTS
END = VELOCITY + N_VELOCITIES
VELOCITIES_PER_BIN = 128 // N_VELOCITIES
DEFAULT_VELOCITY_BIN = N_VELOCITIES // 2


@dataclass(frozen=True)
class KeyEvents:
    """Note-offs and note-ons in the order of rule 5, as columns [N]."""

    step: Ids
    is_on: NDArray[np.bool_]
    pitch: Ids
    velocity: Ids
    """Bin of a note-on."""

    @classmethod
    def of(cls, notes: Notes) -> KeyEvents:
        """Return the events of settled notes."""
        on_step, off_step = to_steps(notes.onset), to_steps(notes.release)
        off_step = np.maximum(off_step, on_step + 1)  # 10 ms may be 9.9999 ms in floating point
        step = np.concatenate([off_step, on_step])
        is_on = np.repeat([False, True], len(notes))
        pitch = np.concatenate([notes.pitch, notes.pitch])
        bins = notes.velocity // VELOCITIES_PER_BIN
        velocity = np.concatenate([np.zeros_like(bins), bins])
        order = np.lexsort((pitch, is_on, step))
        return cls(step[order], is_on[order], pitch[order], velocity[order])

    def __getitem__(self, rows: slice) -> KeyEvents:
        return KeyEvents(self.step[rows], self.is_on[rows], self.pitch[rows], self.velocity[rows])

    def ids(self, start: int = 0, until: int | None = None) -> Ids:
        """Return the ids, with waits from the step `start` on, and a last one `until` a step."""
        count = len(self.step)
        step = self.step if until is None else np.append(self.step, until)
        wait = np.diff(step, prepend=start)
        n_shifts = -(-wait // N_SHIFTS)
        changes = np.zeros(len(step), dtype=bool)
        is_on = np.flatnonzero(self.is_on)
        changes[is_on] = np.diff(self.velocity[is_on], prepend=-1) != 0
        is_event = np.arange(len(step)) < count  # the last wait is followed by none
        ends = np.cumsum(n_shifts + changes + is_event)  # ids up to and including each event
        ids = np.full(ends[-1] if len(ends) else 0, SHIFT + N_SHIFTS - 1, dtype=np.int64)
        ids[ends[:count] - 1] = np.where(self.is_on, NOTE_ON, NOTE_OFF) + self.pitch
        ids[ends[changes] - 2] = VELOCITY + self.velocity[changes[:count]]
        waits = n_shifts > 0
        rest = wait - (n_shifts - 1) * N_SHIFTS  # 1..100 steps, the last shift of a chain
        ids[(ends - changes - 1 - is_event)[waits]] = SHIFT + rest[waits] - 1
        return ids


def steps_of(ids: Ids) -> Ids:
    """Return the time steps that each event waits."""
    return np.where((ids >= SHIFT) & (ids < VELOCITY), ids - SHIFT + 1, 0)


def notes_of(ids: Ids, end: int) -> Notes:
    """Return the notes of ids without END, by pitch and onset, in steps.

    A note lasts until the next event of its pitch, or to the end, and at least one step.
    """
    events = np.flatnonzero(ids < SHIFT)
    events = events[np.argsort(ids[events] % N_PITCHES, kind="stable")]
    pitch, onset = ids[events] % N_PITCHES, np.cumsum(steps_of(ids))[events]
    release = np.append(onset[1:], end)[: len(onset)]
    release = np.where(np.diff(pitch, append=-1) != 0, end, release)
    changed = latest(ids >= VELOCITY)[events]
    bins = np.where(changed < 0, DEFAULT_VELOCITY_BIN, ids[changed] - VELOCITY)
    # The middle of a bin is never 0, the velocity of a release.
    velocity = bins * VELOCITIES_PER_BIN + VELOCITIES_PER_BIN // 2
    part = np.zeros_like(pitch)
    notes = Notes(pitch, onset, np.maximum(release, onset + 1), velocity, part, part)
    return notes[ids[events] < NOTE_OFF]
