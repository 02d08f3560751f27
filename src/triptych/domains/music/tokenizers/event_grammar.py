"""Ids of performance events, and which event may follow which while sampling.

"Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.2, after Oore et al. 2018): 128
note-ons, 128 note-offs, 100 time shifts of 10 to 1000 ms and 32 velocities, here with an END:

    id 0..127    note-on of that pitch           id 256..355  time shift of (id - 255) x 10 ms
    id 128..255  note-off of pitch id - 128      id 356..387  velocity bin id - 356 of later notes
    id 388       END of the piece
"""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.domains.music.tokenizers.notes import STEPS_PER_SECOND

N_PITCHES = 128
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


class EventGrammar:
    """Constraint on sampled events: forbids those without an effect and contradictory ones.

    A note-off needs a sounding pitch. A velocity precedes a note-on. A shift of less than a second
    precedes no other shift. After a note-on, no note-off comes in the same instant. After `seconds`
    of new music only END may come.

    A note-on of a sounding pitch stays allowed, though no encoded piece holds one: forbidding it
    would move the probability of a model that forgets note-offs to pitches outside every piano,
    until all keys are held. A shift beyond `seconds` stays allowed too, since forbidding it would
    crowd notes into the last instant; `EventTokenizer.trim` shortens it.

    n_prompt: number of events at the start that belong to the prompt.
    """

    def __init__(self, batch: int, *, seconds: float | None = None, n_prompt: int = 0) -> None:
        self.max_steps = None if seconds is None else round(seconds * STEPS_PER_SECOND)
        self.n_prompt = n_prompt
        self.n_read = 0
        self.sounding = torch.zeros(batch, N_PITCHES, dtype=torch.bool)
        self.struck = torch.zeros(batch, dtype=torch.bool)  # a note-on in this instant
        self.steps = torch.zeros(batch, dtype=torch.int64)  # time steps of new music
        self.last = torch.full((batch,), -1)

    def __call__(self, values: Tensor) -> Tensor:
        """Mark the ids that may not come next, bool [B, V].

        values: all events so far, int64 [B, t]; t grows from call to call, and each event is read
        once.
        """
        for name in ("sounding", "struck", "steps", "last"):
            setattr(self, name, getattr(self, name).to(values.device))
        for index in range(self.n_read, values.shape[1]):
            self._read(values[:, index], new=index >= self.n_prompt)
        self.n_read = values.shape[1]
        forbidden = values.new_zeros(len(values), len(SYMBOLS), dtype=torch.bool)  # [B, V]
        forbidden[:, NOTE_OFF:SHIFT] = ~self.sounding | self.struck[:, None]
        short = (self.last >= SHIFT) & (self.last < VELOCITY - 1)
        forbidden[:, SHIFT:VELOCITY] = short[:, None]
        after_velocity = (self.last >= VELOCITY) & (self.last < END)
        forbidden[:, NOTE_OFF:] |= after_velocity[:, None]
        if self.max_steps is not None:
            over = self.steps >= self.max_steps
            forbidden[:, :END] |= over[:, None]
            forbidden[:, END] &= ~over
        return forbidden

    def _read(self, event: Tensor, *, new: bool) -> None:
        """Update the state by one event per row, int64 [B], without waiting for the device."""
        is_note = event < SHIFT
        is_on = event < NOTE_OFF
        is_shift = (event >= SHIFT) & (event < VELOCITY)
        pitch = torch.where(is_note, event % N_PITCHES, 0)[:, None]
        before = self.sounding.gather(1, pitch)
        after = torch.where(is_note[:, None], is_on[:, None], before)
        self.sounding = self.sounding.scatter(1, pitch, after)
        self.struck = (self.struck | is_on) & ~is_shift
        if new:
            self.steps = self.steps + torch.where(is_shift, event - SHIFT + 1, 0)
        self.last = event
