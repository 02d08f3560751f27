"""Piano performances as a sequence of events.

"Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.2, after Oore et al. 2018): 128
note-ons, 128 note-offs, 100 time shifts of 10 to 1000 ms and 32 velocities, here with an END:

    id 0..127    note-on of that pitch           id 256..355  time shift of (id - 255) x 10 ms
    id 128..255  note-off of pitch id - 128      id 356..387  velocity bin id - 356 for what follows
    id 388       END, which `encode` does not write and `decode` stops at

Rules, in the order in which `reference_notes` and `encode` apply them:

1. Drums are left out; all other instruments are played on one piano.
2. A release while the sustain pedal is down (control change 64 at 64 or more; the pedal of an
   instrument holds that instrument only, in a file all tracks on its channel) moves to the
   pedal-up, or to the end of the piece.
3. One string per key. Notes of one pitch whose onsets round to the same 10 ms are one note: the
   first onset, the last release, the loudest velocity. Any note ends, at the latest, at the next
   onset of its pitch. No note is shorter than 10 ms (or than the time to that next onset).
4. Onsets and releases are rounded to the absolute grid of 10 ms, so errors never add up.
5. Inside one instant all offs come before all ons, each by rising pitch. A velocity is written only
   where its bin changes. A long wait is a chain of shifts of 1 s and then the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pretty_midi
from numpy.typing import NDArray

from triptych.domains.music.midi import MAX_SECONDS, new_midi
from triptych.domains.music.tracks import SUSTAIN_PEDAL

STEPS_PER_SECOND = 100
N_PITCHES = 128
N_SHIFTS = 100
N_VELOCITIES = 32
VELOCITIES_PER_BIN = 128 // N_VELOCITIES

NOTE_ON = 0
NOTE_OFF = NOTE_ON + N_PITCHES
SHIFT = NOTE_OFF + N_PITCHES  # id SHIFT + n - 1 waits n steps
VELOCITY = SHIFT + N_SHIFTS
END = VELOCITY + N_VELOCITIES
VOCABULARY_SIZE = END + 1

MAX_STEPS = int(MAX_SECONDS * STEPS_PER_SECOND)
DEFAULT_VELOCITY_BIN = N_VELOCITIES // 2
PEDAL_DOWN = 64


@dataclass(frozen=True)
class Notes:
    """Notes of a piece in the order of their onsets; four arrays of one length.

    pitch: MIDI numbers 0..127. onset, release: seconds. velocity: 1..127.
    """

    pitch: NDArray[np.int64]
    onset: NDArray[np.float64]
    release: NDArray[np.float64]
    velocity: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pitch)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, float, float, int]]) -> Notes:
        """Make them of (pitch, onset, release, velocity)."""
        table = np.array(list(rows), dtype=np.float64).reshape(-1, 4)
        return cls(
            table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3].astype(np.int64)
        )


def vocabulary() -> list[str]:
    """Name all ids in their order."""
    return [
        *(f"note_on_{pitch}" for pitch in range(N_PITCHES)),
        *(f"note_off_{pitch}" for pitch in range(N_PITCHES)),
        *(f"shift_{10 * (step + 1)}_ms" for step in range(N_SHIFTS)),
        *(f"velocity_{velocity}" for velocity in range(N_VELOCITIES)),
        "end",
    ]


def encode(midi: pretty_midi.PrettyMIDI) -> list[int]:
    """Write a piece as event ids, without END; empty for a piece without notes.

    Raises ValueError for a piece that ends after two hours.
    """
    return encode_notes(reference_notes(midi)).tolist()


def decode(ids: Sequence[int]) -> pretty_midi.PrettyMIDI:
    """Play event ids; any sequence of them gives a piece that can be written and read again.

    An off of a silent pitch does nothing; an on of a sounding pitch starts it anew; an on and an
    off at one instant give 10 ms; what still sounds at the end, at END or after two hours is closed
    there. Raises ValueError for a number that is no id.
    """
    return to_midi(decode_notes(ids))


def reference_notes(midi: pretty_midi.PrettyMIDI) -> Notes:
    """Give the notes as they sound, pedal applied, by rules 1 to 3, in exact seconds.

    A round trip through `encode` and `decode` moves each onset and release by at most 5 ms.
    """
    pitched = [instrument for instrument in midi.instruments if not instrument.is_drum]
    end = max(
        [note.end for instrument in pitched for note in instrument.notes]
        + [c.time for i in pitched for c in i.control_changes if c.number == SUSTAIN_PEDAL],
        default=0.0,
    )
    rows = []
    for instrument in pitched:
        releases = _apply_pedal(instrument, end)
        rows += [
            (note.pitch, note.start, release, note.velocity)
            for note, release in zip(instrument.notes, releases, strict=True)
        ]
    return settle(Notes.of(rows))


def settle(notes: Notes) -> Notes:
    """Apply rule 3, one string per key; settled notes come back unchanged."""
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


def to_steps(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round times to the absolute grid of 10 ms."""
    return np.floor(np.asarray(seconds) * STEPS_PER_SECOND + 0.5).astype(np.int64)


def velocity_bin(velocity: NDArray[np.int64]) -> NDArray[np.int64]:
    """Put velocities 0..127 into bins of four."""
    return velocity // VELOCITIES_PER_BIN


def bin_velocity(index: int) -> int:
    """Give the middle of a bin: never 0, which would be a release, and always of the same bin."""
    return index * VELOCITIES_PER_BIN + VELOCITIES_PER_BIN // 2


def encode_notes(notes: Notes) -> NDArray[np.int64]:
    """Write settled notes as ids, rules 4 and 5, in one pass over arrays."""
    count = len(notes)
    if not count:
        return np.zeros(0, dtype=np.int64)
    on_step, off_step = to_steps(notes.onset), to_steps(notes.release)
    off_step = np.maximum(off_step, on_step + 1)  # 10 ms that floating point made 9.9999
    if off_step.max() > MAX_STEPS:
        raise ValueError(
            f"The piece ends at {notes.release.max():,.0f} s; at most {MAX_SECONDS:,.0f} s "
            "can be written as events."
        )
    step = np.concatenate([off_step, on_step])
    is_on = np.repeat([False, True], count)
    pitch = np.concatenate([notes.pitch, notes.pitch])
    loudness = np.concatenate([np.zeros_like(notes.velocity), velocity_bin(notes.velocity)])
    order = np.lexsort((pitch, is_on, step))
    step, is_on, pitch, loudness = step[order], is_on[order], pitch[order], loudness[order]

    wait = np.diff(step, prepend=0)
    n_shifts = -(-wait // N_SHIFTS)
    changes = np.zeros(2 * count, dtype=bool)
    changes[is_on] = np.diff(loudness[is_on], prepend=-1) != 0
    ends = np.cumsum(n_shifts + changes + 1)
    ids = np.full(ends[-1], SHIFT + N_SHIFTS - 1, dtype=np.int64)
    ids[ends - 1] = np.where(is_on, NOTE_ON, NOTE_OFF) + pitch
    ids[ends[changes] - 2] = VELOCITY + loudness[changes]
    waits = n_shifts > 0
    rest = wait - (n_shifts - 1) * N_SHIFTS  # 1..100, the last of the chain
    ids[(ends - changes - 2)[waits]] = SHIFT + rest[waits] - 1
    return ids


def decode_notes(ids: Iterable[int]) -> Notes:
    """Read ids as settled notes; see `decode`."""
    now = 0
    velocity = bin_velocity(DEFAULT_VELOCITY_BIN)
    sounding: dict[int, tuple[int, int]] = {}  # pitch -> (step of the onset, velocity)
    rows: list[tuple[int, int, int, int]] = []

    def close(pitch: int) -> None:
        onset, loudness = sounding.pop(pitch)
        rows.append((pitch, onset, max(now, onset + 1), loudness))

    for token in ids:
        token = int(token)
        if not 0 <= token < VOCABULARY_SIZE:
            raise ValueError(f"{token} is no event id; they go from 0 to {VOCABULARY_SIZE - 1}.")
        if token == END:
            break
        if token >= VELOCITY:
            velocity = bin_velocity(token - VELOCITY)
        elif token >= SHIFT:
            now += token - SHIFT + 1
            if now >= MAX_STEPS:  # a file that lasts longer would not be read again
                now = MAX_STEPS
                break
        else:
            pitch = token % N_PITCHES
            if pitch in sounding:
                close(pitch)
            if token < NOTE_OFF:
                sounding[pitch] = (now, velocity)
    for pitch in list(sounding):
        close(pitch)
    return settle(
        Notes.of(
            (pitch, onset / STEPS_PER_SECOND, release / STEPS_PER_SECOND, loudness)
            for pitch, onset, release, loudness in rows
        )
    )


def to_midi(notes: Notes) -> pretty_midi.PrettyMIDI:
    """Put notes on one piano, without pedal."""
    midi = new_midi()
    piano = pretty_midi.Instrument(program=0, name="Piano")
    for pitch, onset, release, velocity in zip(
        notes.pitch.tolist(),
        notes.onset.tolist(),
        notes.release.tolist(),
        notes.velocity.tolist(),
        strict=True,
    ):
        piano.notes.append(pretty_midi.Note(velocity, pitch, onset, release))
    midi.instruments.append(piano)
    return midi


def _apply_pedal(instrument: pretty_midi.Instrument, end: float) -> list[float]:
    """Give the release of each note, moved to the pedal-up where the pedal is down (rule 2)."""
    changes = [c for c in instrument.control_changes if c.number == SUSTAIN_PEDAL]
    # Stable: pedal movements of one instant stay in the order of the file.
    changes.sort(key=lambda change: change.time)
    times = np.array([change.time for change in changes])
    down = np.array([change.value >= PEDAL_DOWN for change in changes], dtype=bool)
    # For each movement, when the next pedal-up comes; the end of the piece where none does.
    next_up = np.full(len(changes) + 1, end)
    for index in range(len(changes) - 1, -1, -1):
        next_up[index] = next_up[index + 1] if down[index] else times[index]
    releases = []
    for note in instrument.notes:
        # A pedal that goes down in the instant of the release still catches the note.
        latest = int(np.searchsorted(times, note.end, side="right")) - 1
        held = latest >= 0 and down[latest]
        releases.append(float(next_up[latest]) if held else note.end)
    return releases
