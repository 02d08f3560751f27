"""Tokenizer of piano performances as events.

"Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.2, after Oore et al. 2018): 128
note-ons, 128 note-offs, 100 time shifts of 10 to 1000 ms and 32 velocities, here with an END:

id 0..127    note-on of that pitch           id 256..355  time shift of (id - 255) x 10 ms
id 128..255  note-off of pitch id - 128      id 356..387  velocity bin id - 356 of later notes
id 388       END of the piece

Rules of `encode`, after those of `notes`:

4. Onsets and releases are rounded to the absolute grid of 10 ms, so that errors do not add up.
5. In one instant all note-offs precede all note-ons, each by rising pitch. A velocity is written
   only where its bin changes. A wait of more than 1 s is a chain of shifts of 1 s and the rest.

A round trip through `encode` and `decode` moves onsets and releases by at most 5 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.music.midi import MAX_SECONDS, instruments, new_midi
from triptych.domains.music.notes import (
    N_PITCHES,
    STEPS_PER_SECOND,
    Ids,
    Notes,
    Score,
    latest,
    performance,
    settle,
    to_steps,
)
from triptych.domains.music.tokenizers.base import MELODY_REST, MelodicTokenizer
from triptych.domains.music.tokenizers.rules import Grammar
from triptych.errors import UserError

if TYPE_CHECKING:
    import pretty_midi

N_SHIFTS = 100
N_VELOCITIES = 32

NOTE_ON = 0
NOTE_OFF = NOTE_ON + N_PITCHES
SHIFT = NOTE_OFF + N_PITCHES  # id SHIFT + n - 1 waits n steps of 10 ms
VELOCITY = SHIFT + N_SHIFTS
END = VELOCITY + N_VELOCITIES

SYMBOLS = (
    *(f"note_on_{pitch}" for pitch in range(N_PITCHES)),
    *(f"note_off_{pitch}" for pitch in range(N_PITCHES)),
    *(f"shift_{10 * (step + 1)}_ms" for step in range(N_SHIFTS)),
    *(f"velocity_{velocity}" for velocity in range(N_VELOCITIES)),
    "end",
)

VELOCITIES_PER_BIN = 128 // N_VELOCITIES
STEPS_PER_MELODY_STEP = 10
"""Steps of 10 ms in one step of the melody, 100 ms."""
DEFAULT_VELOCITY_BIN = N_VELOCITIES // 2
MAX_STEPS = int(MAX_SECONDS * STEPS_PER_SECOND)
PIANO_LOWEST, PIANO_HIGHEST = 21, 108
"""MIDI pitches A0 to C8, the keys of a piano."""


class EventGrammar(Grammar):
    """Constraint on sampled events: forbids those without an effect and contradictory ones.

    A note-off needs a sounding pitch. A velocity precedes a note-on. A shift of less than a second
    precedes no other shift. After a note-on, no note-off comes in the same instant. After `seconds`
    of new music only END may come.

    A note-on of a sounding pitch stays allowed, though no encoded piece holds one: forbidding it
    would move the probability of a model that forgets note-offs to pitches outside every piano,
    until all keys are held. A shift beyond `seconds` stays allowed too, since forbidding it would
    crowd notes into the last instant; `EventTokenizer.trim` shortens it.
    """

    def __init__(self, batch: int, *, seconds: float | None = None, n_prompt: int = 0) -> None:
        super().__init__(n_prompt)
        self.max_steps = None if seconds is None else round(seconds * STEPS_PER_SECOND)
        self.state = {
            "sounding": torch.zeros(batch, N_PITCHES, dtype=torch.bool),
            "struck": torch.zeros(batch, dtype=torch.bool),  # a note-on in this instant
            "steps": torch.zeros(batch, dtype=torch.int64),  # time steps of new music
            "last": torch.full((batch,), -1),
        }

    def forbidden(self) -> Tensor:
        sounding, struck, last = (self.state[name] for name in ("sounding", "struck", "last"))
        forbidden = sounding.new_zeros(len(last), len(SYMBOLS))  # [B, V]
        forbidden[:, NOTE_OFF:SHIFT] = ~sounding | struck[:, None]
        short = (last >= SHIFT) & (last < VELOCITY - 1)
        forbidden[:, SHIFT:VELOCITY] = short[:, None]
        after_velocity = (last >= VELOCITY) & (last < END)
        forbidden[:, NOTE_OFF:] |= after_velocity[:, None]
        if self.max_steps is not None:
            over = self.state["steps"] >= self.max_steps
            forbidden[:, :END] |= over[:, None]
            forbidden[:, END] &= ~over
        return forbidden

    def read(self, token: Tensor, *, new: bool) -> None:
        state, is_note, is_on = self.state, token < SHIFT, token < NOTE_OFF
        is_shift = (token >= SHIFT) & (token < VELOCITY)
        pitch = torch.where(is_note, token % N_PITCHES, 0)[:, None]
        before = state["sounding"].gather(1, pitch)
        after = torch.where(is_note[:, None], is_on[:, None], before)
        state["sounding"] = state["sounding"].scatter(1, pitch, after)
        state["struck"] = (state["struck"] | is_on) & ~is_shift
        if new:
            state["steps"] = state["steps"] + torch.where(is_shift, token - SHIFT + 1, 0)
        state["last"] = token


@dataclass(frozen=True)
class EventTokenizer(MelodicTokenizer):
    """Piano performances as events, one performance per piece; content is `Notes`."""

    name = "events"
    content = "notes of one piano"
    constraint_options = ("scale", "ranges")
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
        return new_midi(instruments(self.decode(ids), [("Piano", 0)]))

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
        # Onsets that come closer may round to one step, so rule 3 is applied again.
        return [
            content if f == 1 else settle(content.with_times(partial(np.multiply, f)))
            for f in factors or [1.0]
        ]

    def trim(self, ids: Ids, *, seconds: float | None, n_prompt: int) -> Ids:
        # The last shift alone is too long: the grammar allows no later one.
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
    changed = latest(ids >= VELOCITY)[events]
    bins = np.where(changed < 0, DEFAULT_VELOCITY_BIN, ids[changed] - VELOCITY)
    # The middle of a bin is never 0, the velocity of a release.
    velocity = bins * VELOCITIES_PER_BIN + VELOCITIES_PER_BIN // 2
    part = np.zeros_like(pitch)
    notes = Notes(pitch, onset, np.maximum(release, onset + 1), velocity, part, part)
    return notes[ids[events] < NOTE_OFF]
