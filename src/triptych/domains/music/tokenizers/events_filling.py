"""Seconds of a performance that are made anew between others.

The ids are Fill, waits as long as the part, the events after it, Past, the events before it, then
the part itself and END. So what is made continues the past, and the future is known.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from triptych.domains.music.frame import Made, chosen_cells, joined, put_into
from triptych.domains.music.notes import (
    STEPS_PER_SECOND,
    Ids,
    Notes,
    performance,
    settle,
    to_steps,
)
from triptych.domains.music.tokenizers.base import FillPart, FillTask
from triptych.domains.music.tokenizers.key_events import END, KeyEvents, notes_of, steps_of
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.domains.music.tokenizers.events import EventTokenizer

FILL, PAST = END + 1, END + 2
LEAST_STEPS, MOST_STEPS = 50, 1000
"""Shortest and longest part that is made anew at a time, in steps of 10 ms."""


def example(ids: Ids, generator: torch.Generator) -> Ids:
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


def fill(tokenizer: EventTokenizer, task: FillTask) -> Made:
    """See `MusicTokenizer.fill`; all parts of a bar are one piano, and are made anew together."""
    score, keep, fill, sample, window = task
    names = [part.name or f"track {number}" for number, part in enumerate(score.parts, start=1)]
    lines = score.bars()
    cells = chosen_cells(lines, names, keep, fill, score.name)
    if not np.array_equal(cells.any(1), cells.all(1)):
        raise UserError(
            f"{keep or fill} keeps a part of a bar; this model plays all tracks as one piano, so "
            "that whole bars are kept or made anew, such as bars:5-8"
        )
    at = np.rint(score.seconds(lines) * STEPS_PER_SECOND).astype(np.int64)
    notes, made = performance(score), performance(score)[:0]
    for start, stop in _parts(at, [bool(row.any()) for row in cells]):
        _, answer = written(notes, start, stop, window)
        room = max(window - 2 * len(answer), window // 2) + len(answer)
        prompt, _ = written(notes, start, stop, room)
        before, plain = _plain(notes, start, stop)
        grammar = partial(tokenizer.exact_grammar, (stop - start) / STEPS_PER_SECOND)
        ids = sample(FillPart(prompt, grammar, answer, plain, before))
        fresh = notes_of(ids[np.cumsum(ids == END) == 0], stop - start)
        times = (fresh.onset + start) / STEPS_PER_SECOND, (fresh.release + start) / STEPS_PER_SECOND
        fresh = replace(fresh, onset=times[0], release=times[1])
        onset = to_steps(notes.onset)
        others = notes[(onset < start) | (onset >= stop)]
        notes, made = settle(joined(others, fresh)), joined(made, fresh)
    onset_bar = np.searchsorted(lines, score.notes.onset, side="right") - 1
    kept = ~cells[onset_bar.clip(max=len(cells) - 1), score.notes.part]
    return put_into(
        score, kept, tokenizer.score_of(settle(made)), tokenizer.owners(score), by_seconds=True
    )


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


def _plain(notes: Notes, start: int, stop: int) -> tuple[Ids, Ids]:
    """Return the ids before a part and those of the part, without infilling."""
    events = KeyEvents.of(notes)
    first, last = np.searchsorted(events.step, [start, stop]).tolist()
    return events[:first].ids(until=start), events[first:last].ids(start=start)
