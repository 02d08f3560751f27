"""Events of a piano performance: their ids, their grammar, and constraints on sampled ones.

The ids (Huang et al. 2018, arXiv 1809.04281, section 4.2):

id 0..127    note-on of that pitch           id 256..355  time shift of (id - 255) x 10 ms
id 128..255  note-off of pitch id - 128      id 356..387  velocity bin id - 356 of later notes
id 388       END of the piece
"""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.decoding.constraints import AnyForbids, at_the_end, repeated_ngrams
from triptych.domains.music.midi import MAX_SECONDS
from triptych.domains.music.notes import N_PITCHES, STEPS_PER_SECOND
from triptych.domains.music.tokenizers.base import Grammar

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
"""Name of each id, in order."""

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


class Onsets(AnyForbids):
    """Forbids what any of several constraints forbids, and a velocity that no note could follow."""

    def __call__(self, values: Tensor) -> Tensor:
        forbidden = super().__call__(values).clone()  # [B, V]
        silent = forbidden[:, :NOTE_OFF].all(1, keepdim=True)  # [B, 1]
        forbidden[:, VELOCITY:END] |= silent
        return forbidden


class NoRepeatedNotes:
    """Forbids a note with which the pitches of the last notes were there before, in one order.

    longest: number of notes in a row that may come again.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def __call__(self, values: Tensor) -> Tensor:
        notes = at_the_end(values, values < NOTE_OFF)  # [B, t]; a note-on is its pitch
        return repeated_ngrams(notes, self.longest + 1, len(SYMBOLS))
