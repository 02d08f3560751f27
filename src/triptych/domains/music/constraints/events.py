"""Constraints on performances as events; `EventGrammar` comes before them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from triptych.decoding.constraints import AnyForbids, repeated_ngrams
from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.constraints.notes import at_the_end, permitted_pitches
from triptych.domains.music.constraints.options import (
    ALL_VOICES,
    TEXTBOOK,
    ConstraintOptions,
    parse_ranges,
)
from triptych.domains.music.event_ids import (
    END,
    MAX_STEPS,
    N_PITCHES,
    N_SHIFTS,
    NOTE_OFF,
    SHIFT,
    SYMBOLS,
    VELOCITY,
)
from triptych.domains.music.midi import MAX_SECONDS
from triptych.domains.music.tokenizers.notes import to_steps
from triptych.errors import UserError


class Onsets(AnyForbids):
    """Forbids what any of several constraints forbids, and a velocity that no note could follow."""

    def __call__(self, values: Tensor) -> Tensor:
        forbidden = super().__call__(values).clone()  # [B, V]
        silent = forbidden[:, :NOTE_OFF].all(1, keepdim=True)  # [B, 1]
        forbidden[:, VELOCITY:END] |= silent
        return forbidden


class OnsetPitches:
    """Forbids notes of other pitches than some."""

    def __init__(self, permitted: set[int]) -> None:
        self.forbidden = torch.zeros(len(SYMBOLS), dtype=torch.bool)  # [V]
        self.forbidden[:NOTE_OFF] = True
        self.forbidden[list(permitted)] = False

    def __call__(self, values: Tensor) -> Tensor:
        self.forbidden = self.forbidden.to(values.device)
        return self.forbidden.expand(len(values), -1)  # [B, V]


class TempoGrid:
    """Forbids notes to begin or end at another time than a multiple of `seconds` from the start.

    Times are rounded to the 10 ms of the events. So a shift must lead to such a time, or last 1 s,
    since shifts of 1 s are the links of longer waits. After a primer that ends between two
    multiples, a shift comes first. Notes that are held at the end of a sample end there.
    """

    def __init__(self, seconds: float) -> None:
        times = to_steps(np.arange(MAX_SECONDS / seconds + 1) * seconds)
        self.on_grid = torch.zeros(MAX_STEPS + N_SHIFTS + 1, dtype=torch.bool)
        self.on_grid[times[times < len(self.on_grid)]] = True

    def __call__(self, values: Tensor) -> Tensor:
        self.on_grid = self.on_grid.to(values.device)
        is_shift = (values >= SHIFT) & (values < VELOCITY)
        now = torch.where(is_shift, values - SHIFT + 1, 0).sum(1, keepdim=True)  # [B, 1]
        now = now.clamp(max=MAX_STEPS)  # later notes are not decoded
        later = now + torch.arange(1, N_SHIFTS + 1, device=values.device)  # [B, shifts]
        forbidden = (~self.on_grid[now]).repeat(1, len(SYMBOLS))  # [B, V]
        forbidden[:, SHIFT:VELOCITY] = ~self.on_grid[later]
        forbidden[:, VELOCITY - 1] = False
        forbidden[:, END] = False
        return forbidden


class MaximumPolyphony:
    """Forbids a note of a silent pitch while `most` or more pitches sound."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, values: Tensor) -> Tensor:
        batch, length = values.shape
        # The last note-on and note-off of each pitch, by position from 1; other events go into one
        # column more.
        event = values.clamp(max=SHIFT)
        position = torch.arange(1, length + 1, device=values.device).expand(batch, -1)
        latest = values.new_zeros(batch, SHIFT + 1).scatter_reduce(1, event, position, "amax")
        sounding = latest[:, :NOTE_OFF] > latest[:, NOTE_OFF:SHIFT]  # [B, pitches]
        full = sounding.sum(1, keepdim=True) >= self.most  # [B, 1]
        forbidden = values.new_zeros(batch, len(SYMBOLS), dtype=torch.bool)  # [B, V]
        forbidden[:, :NOTE_OFF] = full & ~sounding
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


def build(options: ConstraintOptions) -> list[LogitsConstraint]:
    """Return the constraints, the most important one first; raises UserError as options need it."""
    found: list[LogitsConstraint] = []
    if options.scale is not None or options.ranges is not None:
        span = None if options.ranges is None else _span(options.ranges)
        found.append(OnsetPitches(permitted_pitches(range(N_PITCHES), options, span, "the piano")))
    if options.grid is not None:
        found.append(TempoGrid(options.grid))
    if options.max_polyphony is not None:
        found.append(MaximumPolyphony(options.max_polyphony))
    rules: list[LogitsConstraint] = [Onsets(found)] if found else []
    if options.no_repeat is not None:  # with the others: no velocity where both leave no note
        rules.append(Onsets([*found, NoRepeatedNotes(options.no_repeat)]))
    return rules


def _span(ranges: str) -> tuple[int, int]:
    """Return the one range of a performance."""
    spans = {} if ranges == TEXTBOOK else parse_ranges(ranges)
    if ALL_VOICES not in spans:
        raise UserError(
            f"ranges is {ranges!r}, but a performance has no voices; expected a lowest and a "
            "highest MIDI pitch, such as 48-84"
        )
    return spans[ALL_VOICES]
