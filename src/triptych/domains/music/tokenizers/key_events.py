"""Ids of performances as events: notes, the grammar of sampled ids, and parts made anew.

A part between others is made anew with the ids Fill, waits as long as the part, the events after
it, Past, the events before it, then the part itself and END. So what is made continues the past,
and the future is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.music.frame import chosen_cells, joined
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
from triptych.domains.music.tokenizers.base import FillPart, FillTask
from triptych.domains.music.tokenizers.rules import Grammar
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.domains.music.tokenizers.events import EventTokenizer

N_SHIFTS = 100
N_VELOCITIES = 32

NOTE_ON = 0
NOTE_OFF = NOTE_ON + N_PITCHES
SHIFT = NOTE_OFF + N_PITCHES  # id SHIFT + n - 1 waits n steps of 10 ms
VELOCITY = SHIFT + N_SHIFTS
END = VELOCITY + N_VELOCITIES
FILL, PAST = END + 1, END + 2
SYMBOLS = (
    *(f"note_on_{pitch}" for pitch in range(N_PITCHES)),
    *(f"note_off_{pitch}" for pitch in range(N_PITCHES)),
    *(f"shift_{10 * (step + 1)}_ms" for step in range(N_SHIFTS)),
    *(f"velocity_{velocity}" for velocity in range(N_VELOCITIES)),
    "end",
)
VELOCITIES_PER_BIN = 128 // N_VELOCITIES
DEFAULT_VELOCITY_BIN = N_VELOCITIES // 2
LEAST_STEPS, MOST_STEPS = 50, 1000
"""Shortest and longest part that is made anew at a time, in steps of 10 ms."""


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
        n_prompt: int = 0,
        *,
        seconds: float | None = None,
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
        is_past = token == PAST  # the music before a part that is made anew starts
        state["sounding"] = state["sounding"] & ~is_past[:, None]
        state["struck"] = state["struck"] & ~is_past


@dataclass(frozen=True)
class LongestNote:
    """Rule that forbids all but the ends of the notes that have sounded for `steps` or longer.

    size: of the vocabulary.
    """

    size: int
    steps: int

    def __call__(self, values: Tensor) -> Tensor:
        """Mark the ids that may not come next, bool [B, V]; values: all ids so far, [B, t]."""
        forbidden = torch.ones(len(values), self.size, dtype=torch.bool, device=values.device)
        if not values.shape[1]:
            return ~forbidden
        is_shift = (values >= SHIFT) & (values < VELOCITY)
        time = torch.where(is_shift, values - SHIFT + 1, 0).cumsum(1)  # [B, t]
        index = torch.arange(values.shape[1], device=values.device).expand_as(values)
        # The music before a part that is made anew starts at PAST.
        start = torch.where(values == PAST, index, -1).amax(1, keepdim=True)  # [B, 1]
        is_note = (values < SHIFT) & (index > start)
        pitch = torch.where(is_note, values % N_PITCHES, N_PITCHES)
        none = values.new_full((len(values), N_PITCHES + 1), -1)
        last = none.scatter_reduce(1, pitch, index, "amax")[:, :-1]  # [B, 128], latest event
        at = last.clamp(min=0)
        sounding = (last >= 0) & (values.gather(1, at) < NOTE_OFF)
        overdue = sounding & (time[:, -1:] - time.gather(1, at) >= self.steps)  # [B, 128]
        forbidden[:, NOTE_OFF:SHIFT] = ~overdue
        return forbidden & overdue.any(1, keepdim=True)


def example(tokenizer: EventTokenizer, ids: Ids, generator: torch.Generator) -> Ids:
    """Return a crop of a piece with a part of it written as one that is made anew.

    A crop of less than four times the shortest part comes back as it is.
    """
    ended = bool(len(ids)) and int(ids[-1]) == END
    events = ids[:-1] if ended else ids
    total = int(steps_of(events).sum())
    if total < 4 * LEAST_STEPS:
        return ids

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    length = draw(LEAST_STEPS, min(MOST_STEPS, total // 2))
    start = draw(0, total - length)
    notes = notes_of(events, total).with_times(lambda steps: steps / STEPS_PER_SECOND)
    prompt, answer = written(settle(notes), start, start + length, len(ids), ended=ended)
    return np.concatenate([prompt, answer])[: len(ids)]


def written(
    notes: Notes, start: int, stop: int, room: int, *, ended: bool = True
) -> tuple[Ids, Ids]:
    """Return the ids before a part, and those of the part with END; together at most `room`.

    notes: settled. start, stop: of the part, in steps. ended: the piece ends after the notes.
    """
    onset = to_steps(notes.onset)
    early = notes[onset < stop]
    release = np.minimum(early.release, stop / STEPS_PER_SECOND)
    events = KeyEvents.of(replace(early, release=release))
    cut, last = np.searchsorted(events.step, [start, stop]).tolist()
    before = events[:cut].ids(until=start)
    answer = np.append(events[cut:last].ids(start=start, until=stop), END)  # open notes end there
    after = KeyEvents.of(notes[onset >= stop]).ids(start=stop)
    wait = KeyEvents.of(notes[:0]).ids(until=stop - start)
    left = max(0, room - len(wait) - len(answer) - 3)
    n_after = min(len(after), max(left // 2, left - len(before)))
    tail = np.full(int(ended and n_after == len(after)), END)
    before = before[max(0, len(before) - (left - n_after)) :]
    return np.concatenate([[FILL], wait, after[:n_after], tail, [PAST], before]), answer


def filled(
    tokenizer: EventTokenizer, task: FillTask, names: list[str]
) -> tuple[NDArray[np.bool_], Score]:
    """See `MusicTokenizer.filled`; all parts of a bar are one piano."""
    score, keep, fill, sample, window = task
    lines = score.bars()
    cells = chosen_cells(lines, names, keep, fill, score.name)
    if not np.array_equal(cells.any(1), cells.all(1)):
        raise UserError(
            f"{keep or fill} keeps a part of a bar; this model plays all tracks as one piano, so "
            "that whole bars are kept or made anew, such as bars:5-8"
        )
    at = np.rint(score.seconds(lines) * STEPS_PER_SECOND).astype(np.int64)
    notes, made = performance(score), performance(score)[:0]
    parts = _parts(at, [bool(row.any()) for row in cells])
    while parts:
        start, stop = parts.pop(0)
        _, answer = written(notes, start, stop, window)
        room = max(window - 2 * len(answer), window // 2) + len(answer)
        prompt, _ = written(notes, start, stop, room)
        seconds = (stop - start) / STEPS_PER_SECOND
        size = tokenizer.vocabulary_size
        grammar = partial(EventGrammar, 1, size, seconds=seconds, is_exact=True)
        events = KeyEvents.of(notes)
        first, last = np.searchsorted(events.step, [start, stop]).tolist()
        plain, before = events[first:last].ids(start=start), events[:first].ids(until=start)
        ids = sample(FillPart(prompt, grammar, answer, plain, before))
        reached = start + int(steps_of(ids).sum())
        if END not in ids and start < reached < stop:
            # The most tokens came before the end: what is after them is a new part.
            parts.insert(0, (reached, stop))
            stop = reached
        fresh = notes_of(ids[np.cumsum(ids == END) == 0], stop - start)
        times = (fresh.onset + start) / STEPS_PER_SECOND, (fresh.release + start) / STEPS_PER_SECOND
        fresh = replace(fresh, onset=times[0], release=times[1])
        onset = to_steps(notes.onset)
        others = notes[(onset < start) | (onset >= stop)]
        notes, made = settle(joined(others, fresh)), joined(made, fresh)
    return cells, tokenizer.score_of(settle(made))


def _parts(at: Ids, is_new: list[bool]) -> list[tuple[int, int]]:
    """Return the first step and the end of each part that is made at a time.

    at: steps at which bars begin, and the end. is_new: of each bar.
    """
    parts: list[tuple[int, int]] = []
    for new, run in groupby(range(len(is_new)), key=is_new.__getitem__):
        bars = list(run)
        first, end = int(at[bars[0]]), int(at[bars[-1] + 1])
        count = -(-(end - first) // MOST_STEPS)
        if new:
            parts += pairwise(np.linspace(first, end, count + 1).astype(int).tolist())
    return parts
