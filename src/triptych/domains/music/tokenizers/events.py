"""Tokenizer of piano performances as events.

"Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.2, after Oore et al. 2018): 128
note-ons, 128 note-offs, 100 time shifts of 10 to 1000 ms and 32 velocities, here with an END. Their
ids are in `event_rules`.

Rules of `encode`, after those of `notes`:

4. Onsets and releases are rounded to the absolute grid of 10 ms, so that errors do not add up.
5. In one instant all note-offs precede all note-ons, each by rising pitch. A velocity is written
   only where its bin changes. A wait of more than 1 s is a chain of shifts of 1 s and the rest.

A round trip through `encode` and `decode` moves onsets and releases by at most 5 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.constraints import ConstraintOptions
from triptych.domains.music.midi import MAX_SECONDS, instruments, new_midi
from triptych.domains.music.notes import (
    N_PITCHES,
    STEPS_PER_SECOND,
    Ids,
    Notes,
    Score,
    performance,
    settle,
    stretch,
    to_steps,
)
from triptych.domains.music.tokenizers.base import (
    MELODY_REST,
    MusicTokenizer,
)
from triptych.domains.music.tokenizers.event_rules import (
    END,
    MAX_STEPS,
    N_SHIFTS,
    N_VELOCITIES,
    NOTE_OFF,
    NOTE_ON,
    PIANO_HIGHEST,
    PIANO_LOWEST,
    SHIFT,
    SYMBOLS,
    VELOCITY,
    EventGrammar,
    constraints_of,
)
from triptych.errors import UserError

if TYPE_CHECKING:
    import pretty_midi


VELOCITIES_PER_BIN = 128 // N_VELOCITIES
STEPS_PER_MELODY_STEP = 10
"""Steps of 10 ms in one step of the melody, 100 ms."""
DEFAULT_VELOCITY_BIN = N_VELOCITIES // 2


def bin_velocity(index: int) -> int:
    """Return the middle of a velocity bin, which is never 0, the velocity of a release."""
    return index * VELOCITIES_PER_BIN + VELOCITIES_PER_BIN // 2


@dataclass(frozen=True)
class EventTokenizer(MusicTokenizer):
    """Piano performances as events, one performance per piece; content is `Notes`."""

    name = "events"
    content = "notes of one piano"
    constraint_options = ("scale", "ranges", "grid", "max_polyphony", "no_repeat")
    symbols = SYMBOLS
    end = END
    pitch_range = PIANO_LOWEST, PIANO_HIGHEST
    count_contexts: ClassVar = {"frequency of the event": (None, ()), "previous event": (1, ())}
    tokens_per_unit = 1
    seconds_per_unit = 1 / 200
    """Bound on the tokens in a second: a performance of MAESTRO has about 40."""
    unit = "events"
    steps_per_second = STEPS_PER_SECOND
    melody_step = STEPS_PER_MELODY_STEP
    seconds_per_melody_step = STEPS_PER_MELODY_STEP / STEPS_PER_SECOND

    def from_midi(self, score: Score) -> Notes:
        notes = performance(score)
        if not len(notes):
            raise UserError(f"{score.name} holds no notes but drums")
        return notes

    def rules(self, options: ConstraintOptions) -> list[LogitsConstraint]:
        return constraints_of(options)

    def encode(self, content: Notes) -> Ids:
        """Write settled notes as event ids, by rules 4 and 5, without END."""
        notes, count = content, len(content)
        if not count:
            return np.zeros(0, dtype=np.int64)
        on_step, off_step = to_steps(notes.onset), to_steps(notes.release)
        off_step = np.maximum(off_step, on_step + 1)  # 10 ms may be 9.9999 ms in floating point
        step = np.concatenate([off_step, on_step])
        is_on = np.repeat([False, True], count)
        pitch = np.concatenate([notes.pitch, notes.pitch])
        velocity = np.concatenate(
            [np.zeros(count, dtype=np.int64), notes.velocity // VELOCITIES_PER_BIN]
        )
        order = np.lexsort((pitch, is_on, step))
        step, is_on, pitch, velocity = step[order], is_on[order], pitch[order], velocity[order]

        wait = np.diff(step, prepend=0)
        n_shifts = -(-wait // N_SHIFTS)
        changes = np.zeros(2 * count, dtype=bool)
        changes[is_on] = np.diff(velocity[is_on], prepend=-1) != 0
        ends = np.cumsum(n_shifts + changes + 1)  # events up to and including each note event
        ids = np.full(ends[-1], SHIFT + N_SHIFTS - 1, dtype=np.int64)
        ids[ends - 1] = np.where(is_on, NOTE_ON, NOTE_OFF) + pitch
        ids[ends[changes] - 2] = VELOCITY + velocity[changes]
        waits = n_shifts > 0
        rest = wait - (n_shifts - 1) * N_SHIFTS  # 1..100 steps, the last shift of a chain
        ids[(ends - changes - 2)[waits]] = SHIFT + rest[waits] - 1
        return ids

    def decode(self, ids: Ids) -> Notes:
        """Read event ids as settled notes. Any sequence of ids is accepted.

        A note-off of a silent pitch is ignored. A note-on of a sounding pitch starts it anew. A
        note-on and a note-off in one instant give 10 ms. Notes that are open at the end, at END or
        at MAX_SECONDS end there.
        """
        now = 0
        velocity = bin_velocity(DEFAULT_VELOCITY_BIN)
        sounding: dict[int, tuple[int, int]] = {}  # pitch -> (step of the onset, velocity)
        rows: list[tuple[int, float, float, int]] = []

        def close(pitch: int) -> None:
            onset, loudness = sounding.pop(pitch)
            release = max(now, onset + 1)
            rows.append((pitch, onset / STEPS_PER_SECOND, release / STEPS_PER_SECOND, loudness))

        for token in ids.tolist():
            if token == END:
                break
            if token >= VELOCITY:
                velocity = bin_velocity(token - VELOCITY)
            elif token >= SHIFT:
                now += token - SHIFT + 1
                if now >= MAX_STEPS:  # a longer file could not be read again
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
        return settle(Notes.of(rows))

    def to_midi(self, ids: Ids) -> pretty_midi.PrettyMIDI:
        """Play events on one piano, without a pedal."""
        midi = new_midi()
        midi.instruments = instruments(self.decode(ids), [("Piano", 0)])
        return midi

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        return ids < NOTE_OFF

    def seconds_and_pitches(self, ids: Ids) -> tuple[NDArray[np.float64], Ids]:
        steps = _steps(ids)
        before = np.cumsum(steps) - steps
        return before / STEPS_PER_SECOND, np.where(ids < SHIFT, ids % N_PITCHES, -1)

    def pitches(self, content: Notes) -> Ids:
        return content.pitch

    def melody(self, ids: Ids) -> Ids:
        now = np.cumsum(_steps(ids))
        end = int(now[-1]) if len(ids) else 0
        melody = np.full(max(1, end), -1)
        # Notes by pitch and then by time: a note lasts until the next event of its pitch.
        notes = np.flatnonzero(ids < SHIFT)
        notes = notes[np.argsort(ids[notes] % N_PITCHES, kind="stable")]
        pitch, onset = ids[notes] % N_PITCHES, now[notes]
        release = np.append(onset[1:], end)
        release[np.append(pitch[1:] != pitch[:-1], True)[: len(notes)]] = end
        is_on = ids[notes] < NOTE_OFF
        pitch, onset, release = pitch[is_on], onset[is_on], release[: len(notes)][is_on]
        first, stop = onset, np.maximum(release, onset + 1)
        number = np.repeat(np.arange(len(pitch)), stop - first)  # of the note in each of its steps
        within = np.arange(len(number)) - (np.cumsum(stop - first) - (stop - first))[number]
        step = first[number] + within
        inside = step < len(melody)  # a note may begin in the instant in which the piece ends
        np.maximum.at(melody, step[inside], pitch[number[inside]])
        return np.where(melody < 0, MELODY_REST, melody)

    @property
    def durations(self) -> Ids:
        return _steps(np.arange(self.vocabulary_size))

    def melody_steps(self, length: int) -> int:
        # MAESTRO has 4 events in 100 ms. Twice the mean, so that most windows of slower music have
        # all of their melody.
        return 2 * -(-length // 4)

    def transpose(self, ids: Ids, semitones: int) -> Ids:
        return np.where(ids < SHIFT, ids + semitones, ids)

    def stretched(self, content: Notes, factors: Sequence[float]) -> list[Notes]:
        last = content.release.max(initial=0.0)
        factors = [f for f in factors if f <= 1 or last * f <= MAX_SECONDS]
        return [stretch(content, factor) for factor in factors or [1.0]]

    def trim(self, ids: Ids, *, seconds: float | None, n_prompt: int) -> Ids:
        """Shorten the last shift to the rest of `seconds`; `constraint` allows no later one."""
        steps = _steps(ids[n_prompt:])
        waits = np.flatnonzero(steps)
        if seconds is None or not len(waits):
            return ids
        trimmed = ids.copy()
        trimmed[n_prompt + waits[-1]] -= max(0, steps.sum() - round(seconds * STEPS_PER_SECOND))
        return trimmed

    def grammar(self, batch: int, *, seconds: float | None, n_prompt: int) -> EventGrammar:
        return EventGrammar(batch, seconds=seconds, n_prompt=n_prompt)


def _steps(ids: Ids) -> Ids:
    """Return the time steps that each event waits."""
    return np.where((ids >= SHIFT) & (ids < VELOCITY), ids - SHIFT + 1, 0)
