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

from triptych.decoding.constraints import Forbidden
from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.constraints import ConstraintOptions, permitted_pitches
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
from triptych.domains.music.tokenizers.base import MELODY_REST, MelodicTokenizer
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
    NoRepeatedNotes,
    Onsets,
)
from triptych.errors import UserError

if TYPE_CHECKING:
    import pretty_midi


VELOCITIES_PER_BIN = 128 // N_VELOCITIES
STEPS_PER_MELODY_STEP = 10
"""Steps of 10 ms in one step of the melody, 100 ms."""
DEFAULT_VELOCITY_BIN = N_VELOCITIES // 2


def bin_velocity(index: Ids) -> Ids:
    """Return the middle of each velocity bin, which is never 0, the velocity of a release."""
    return index * VELOCITIES_PER_BIN + VELOCITIES_PER_BIN // 2


@dataclass(frozen=True)
class EventTokenizer(MelodicTokenizer):
    """Piano performances as events, one performance per piece; content is `Notes`."""

    name = "events"
    content = "notes of one piano"
    constraint_options = ("scale", "ranges", "no_repeat")
    symbols = SYMBOLS
    id_pitches = np.r_[np.tile(np.arange(N_PITCHES), 2), np.full(len(SYMBOLS) - SHIFT, -1)]  # [V]
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
        first: list[LogitsConstraint] = []
        if options.scale is not None or options.ranges is not None:
            permitted = permitted_pitches(options, range(N_PITCHES), {})[0]
            first.append(Forbidden([*({*range(N_PITCHES)} - permitted)], len(SYMBOLS)))
        rules: list[LogitsConstraint] = [Onsets(first)] if first else []
        if options.no_repeat is not None:  # with the others: no velocity where both leave no note
            rules.append(Onsets([*first, NoRepeatedNotes(options.no_repeat)]))
        return rules

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
        ids = self.without_end(ids)
        now = np.cumsum(_steps(ids))
        end = min(int(now.max(initial=0)), MAX_STEPS)  # a longer file could not be read again
        notes = _notes(ids[now < MAX_STEPS], end)
        return settle(notes.with_times(lambda steps: steps / STEPS_PER_SECOND))

    def to_midi(self, ids: Ids) -> pretty_midi.PrettyMIDI:
        """Play events on one piano, without a pedal."""
        midi = new_midi()
        midi.instruments = instruments(self.decode(ids), [("Piano", 0)])
        return midi

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        return ids < NOTE_OFF

    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        steps = _steps(ids)
        return (np.cumsum(steps) - steps) / STEPS_PER_SECOND

    def melody(self, ids: Ids) -> Ids:
        end = int(_steps(ids).sum())
        melody = np.full(max(1, end), MELODY_REST)
        for pitch, onset, release in _notes(ids, end).rows("pitch", "onset", "release"):
            melody[onset:release] = pitch  # the highest one is the last
        return melody

    @property
    def durations(self) -> Ids:
        return _steps(np.arange(self.vocabulary_size))

    def melody_steps(self, length: int) -> int:
        # MAESTRO has 4 events in 100 ms. Twice the mean, so that most windows of slower music have
        # all of their melody.
        return 2 * -(-length // 4)

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


def _notes(ids: Ids, end: int) -> Notes:
    """Return the notes of ids without END, by pitch and onset, in steps.

    A note lasts until the next event of its pitch, or to the end, and at least one step.
    """
    events = np.flatnonzero(ids < SHIFT)
    events = events[np.argsort(ids[events] % N_PITCHES, kind="stable")]
    pitch, onset = ids[events] % N_PITCHES, np.cumsum(_steps(ids))[events]
    release = np.append(onset[1:], end)[: len(onset)]
    release = np.where(np.diff(pitch, append=-1) != 0, end, release)
    default = VELOCITY + DEFAULT_VELOCITY_BIN
    latest = np.maximum.accumulate(
        np.where((ids >= VELOCITY) & (ids < END), np.arange(len(ids)), -1)
    )
    velocity = bin_velocity(np.where(latest < 0, default, ids[latest]) - VELOCITY)[events]
    part = np.zeros_like(pitch)
    notes = Notes(pitch, onset, np.maximum(release, onset + 1), velocity, part, part)
    return notes[ids[events] < NOTE_OFF]
