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
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.music.frame import Made
from triptych.domains.music.midi import MAX_SECONDS
from triptych.domains.music.notes import (
    DEFAULT_TEMPO,
    N_PITCHES,
    STEPS_PER_SECOND,
    Ids,
    Notes,
    Part,
    Score,
    performance,
    settle,
)
from triptych.domains.music.tokenizers import events_filling
from triptych.domains.music.tokenizers.base import (
    MELODY_REST,
    FillTask,
    MelodicTokenizer,
    Prompt,
)
from triptych.domains.music.tokenizers.key_events import (
    END,
    N_SHIFTS,
    N_VELOCITIES,
    NOTE_OFF,
    SHIFT,
    VELOCITY,
    KeyEvents,
    notes_of,
    steps_of,
)
from triptych.domains.music.tokenizers.rules import Grammar
from triptych.errors import UserError

SYMBOLS = (
    *(f"note_on_{pitch}" for pitch in range(N_PITCHES)),
    *(f"note_off_{pitch}" for pitch in range(N_PITCHES)),
    *(f"shift_{10 * (step + 1)}_ms" for step in range(N_SHIFTS)),
    *(f"velocity_{velocity}" for velocity in range(N_VELOCITIES)),
    "end",
)

STEPS_PER_MELODY_STEP = 10
"""Steps of 10 ms in one step of the melody, 100 ms."""
TICKS_PER_STEP = 10
MAX_STEPS = int(MAX_SECONDS * STEPS_PER_SECOND)
PIANO_LOWEST, PIANO_HIGHEST = 21, 108
"""MIDI pitches A0 to C8, the keys of a piano."""


class EventGrammar(Grammar):
    """Constraint on sampled events: forbids those without an effect and contradictory ones.

    size: of the vocabulary. is_exact: END comes after `seconds`, not before.

    A note-off needs a sounding pitch. A velocity precedes a note-on. A shift of less than a second
    precedes no other shift. After a note-on, no note-off comes in the same instant. After `seconds`
    of new music only END may come.

    A note-on of a sounding pitch stays allowed, though no encoded piece holds one: forbidding it
    would move the probability of a model that forgets note-offs to pitches outside every piano,
    until all keys are held. A shift beyond `seconds` stays allowed too, since forbidding it would
    crowd notes into the last instant; `EventTokenizer.trim` shortens it.
    """

    def __init__(
        self,
        batch: int,
        size: int = len(SYMBOLS),
        *,
        seconds: float | None = None,
        n_prompt: int = 0,
        is_exact: bool = False,
    ) -> None:
        super().__init__(n_prompt)
        self.size, self.is_exact = size, is_exact
        self.max_steps = None if seconds is None else round(seconds * STEPS_PER_SECOND)
        self.state = {
            "sounding": torch.zeros(batch, N_PITCHES, dtype=torch.bool),
            "struck": torch.zeros(batch, dtype=torch.bool),  # a note-on in this instant
            "steps": torch.zeros(batch, dtype=torch.int64),  # time steps of new music
            "last": torch.full((batch,), -1),
        }

    def forbidden(self) -> Tensor:
        sounding, struck, last = (self.state[name] for name in ("sounding", "struck", "last"))
        forbidden = sounding.new_zeros(len(last), self.size)  # [B, V]
        forbidden[:, END + 1 :] = True
        forbidden[:, NOTE_OFF:SHIFT] = ~sounding | struck[:, None]
        short = (last >= SHIFT) & (last < VELOCITY - 1)
        forbidden[:, SHIFT:VELOCITY] = short[:, None]
        after_velocity = (last >= VELOCITY) & (last < END)
        forbidden[:, NOTE_OFF:] |= after_velocity[:, None]
        if self.max_steps is not None:
            over = self.state["steps"] >= self.max_steps
            forbidden[:, :END] |= over[:, None]
            forbidden[:, END] = ~over if self.is_exact else forbidden[:, END] & ~over
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
        is_past = token == END + 2  # the music before a part that is made anew starts
        state["sounding"] = state["sounding"] & ~is_past[:, None]
        state["struck"] = state["struck"] & ~is_past


@dataclass(frozen=True)
class EventTokenizer(MelodicTokenizer):
    """Piano performances as events, one performance per piece; content is `Notes`."""

    infilling: bool = False
    """Whether there are ids for a part that is made anew; see `data.infilling_share`."""

    name = "events"
    content = "notes of one piano"
    constraint_options = ("scale", "ranges")
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
    by_seconds = True

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*SYMBOLS, "fill", "past") if self.infilling else SYMBOLS

    @property
    def id_pitches(self) -> Ids:
        n_others = self.vocabulary_size - SHIFT
        pitches: Ids = np.r_[np.tile(np.arange(N_PITCHES), 2), np.full(n_others, -1)]  # [V]
        return pitches

    @property
    def can_fill(self) -> bool:
        return self.infilling

    def from_midi(self, score: Score) -> Notes:
        notes = performance(score)
        if not len(notes):
            raise UserError(f"{score.name} holds no notes but drums")
        return notes

    def encode(self, content: Notes) -> Ids:
        """Write settled notes as event ids, by rules 4 and 5, without END."""
        return KeyEvents.of(content).ids()

    def decode(self, ids: Ids) -> Notes:
        """Read event ids as settled notes. Any sequence of ids is accepted.

        A note-off of a silent pitch is ignored. A note-on of a sounding pitch starts it anew. A
        note-on and a note-off in one instant give 10 ms. Notes that are open at the end, at END or
        at MAX_SECONDS end there.
        """
        ids = self.without_end(ids)
        now = np.cumsum(steps_of(ids))
        end = min(int(now.max(initial=0)), MAX_STEPS)  # a longer file could not be read again
        notes = notes_of(ids[now < MAX_STEPS], end)
        return settle(notes.with_times(lambda steps: steps / STEPS_PER_SECOND))

    def to_score(self, ids: Ids) -> Score:
        end = min(int(steps_of(self.without_end(ids)).sum()), MAX_STEPS) * TICKS_PER_STEP
        return replace(self.score_of(self.decode(ids)), last_tick=end)

    def score_of(self, notes: Notes) -> Score:
        """Return settled notes as a score of one piano."""
        per_second = TICKS_PER_STEP * STEPS_PER_SECOND
        notes = notes.with_times(lambda times: np.rint(times * per_second).astype(np.int64))
        per_quarter, end = (
            round(per_second * DEFAULT_TEMPO / 1e6),
            int(notes.release.max(initial=0)),
        )
        return Score("music", [Part("Piano", is_drum=False)], notes, per_quarter, end, [], [])

    def owners(self, score: Score) -> dict[str, int]:
        pitched = np.unique(score.notes.pitched.part)
        return {"Piano": int(pitched[0])} if len(pitched) == 1 else {}

    def prompt(self, score: Score) -> Prompt:
        notes = self.from_midi(score)
        end = round(max(score.duration, notes.release.max(initial=0)) * STEPS_PER_SECOND)
        return Prompt(KeyEvents.of(notes).ids(until=end), end * TICKS_PER_STEP)

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        return ids < NOTE_OFF

    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        steps = steps_of(ids)
        return (np.cumsum(steps) - steps) / STEPS_PER_SECOND

    def melody(self, ids: Ids) -> Ids:
        end = int(steps_of(ids).sum())
        melody = np.full(max(1, end), MELODY_REST)
        for pitch, onset, release in notes_of(ids, end).rows("pitch", "onset", "release"):
            melody[onset:release] = pitch  # the highest one is the last
        return melody

    @property
    def durations(self) -> Ids:
        return steps_of(np.arange(self.vocabulary_size))

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
        steps = steps_of(ids[n_prompt:])
        waits = np.flatnonzero(steps)
        if seconds is None or not len(waits):
            return ids
        trimmed = ids.copy()
        trimmed[n_prompt + waits[-1]] -= max(0, steps.sum() - round(seconds * STEPS_PER_SECOND))
        return trimmed

    def grammar(
        self, batch: int, *, seconds: float | None, n_prompt: int, start: int = 0
    ) -> EventGrammar:
        return EventGrammar(batch, self.vocabulary_size, seconds=seconds, n_prompt=n_prompt)

    def exact_grammar(self, seconds: float, n_prompt: int) -> EventGrammar:
        """Return the rule of a part that is made anew, which lasts exactly so many seconds."""
        return EventGrammar(
            1, self.vocabulary_size, seconds=seconds, n_prompt=n_prompt, is_exact=True
        )

    def fill(self, task: FillTask) -> Made:
        return events_filling.fill(self, task) if self.infilling else super().fill(task)

    def fill_example(self, ids: Ids, generator: torch.Generator) -> Ids:
        return events_filling.example(ids, generator)
