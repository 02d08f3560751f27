"""Tokenizer of several instruments and drums, by bars.

REMI (Huang and Yang 2020, arXiv 2002.00212) writes music by bars: Bar, then Position in the bar,
then Pitch and Duration of each note. REMI+ (von Rütte et al. 2022, arXiv 2201.10936) adds a time
signature to each bar and an instrument to each note, so that one sequence holds all instruments.
Here the instrument is written where it changes:

    Bar TimeSig_3/4 Position_0 Tempo_120 Program_violin Pitch_62 Duration_12 Pitch_69 Duration_12
    Program_cello Pitch_50 Duration_12 Position_12 Program_violin ...

Positions and durations count twelfths of a quarter. Notes of one position are in the order of the
instruments, then of their pitches. Bar lines are those of the file, on the nearest sixteenth: a
pickup and a bar that another time signature cuts are short bars. Drums have pitches of their own,
which nothing transposes. The pedal is not read.

With `infilling`, a sequence may also be bars of which some instruments are made anew:

    Fill, the bars after them, Past, the bars before them, then each bar as
    Bar TimeSig ... what is kept of it, New, what is new in it; and EOS

so that new notes follow what is kept of their bar, and both sides are known (prompt of future and
past, as in Bavarian et al. 2022, arXiv 2207.14255).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.decoding.constraints import Forbidden
from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.chords import transposed
from triptych.domains.music.constraints import ConstraintOptions
from triptych.domains.music.notes import DRUMS, Ids, Score, latest
from triptych.domains.music.tokenizers import remi_filling
from triptych.domains.music.tokenizers.base import FillTask, Prompt
from triptych.domains.music.tokenizers.remi_bars import (
    TICKS_PER_POSITION,
    bars_of,
    read_bars,
    score_of,
    written,
)
from triptych.domains.music.tokenizers.remi_grammar import (
    DEFAULT_TEMPO,
    NOTE_KINDS,
    Kind,
    RemiGrammar,
    RemiVocabulary,
)
from triptych.errors import UserError


@dataclass(frozen=True)
class RemiTokenizer(RemiVocabulary):
    """Music of several instruments and drums, by bars; content is the ids themselves.

    Encoding takes a while, so that reading, which several processes share, does it.
    """

    name = "remi"
    content = "ids of several instruments"
    constraint_options = ("instruments",)
    end = 0
    pitch_range = 21, 108
    count_contexts: ClassVar = {"frequency of the token": (None, ()), "previous token": (1, ())}
    tokens_per_unit = 1
    seconds_per_unit = 1 / 200
    """Bound on the tokens in a second: a quartet has about 30, a band about 100."""
    unit = "tokens"
    steps_per_second = 100

    def from_midi(self, score: Score) -> Ids:
        ids = written(self, bars_of(self, score))
        if not (self.meaning.kind[ids] == Kind.Duration).any():
            raise UserError(
                f"{score.name} holds no notes of the instruments {', '.join(self.ensemble.names)}"
            )
        return ids

    def encode(self, content: Ids) -> Ids:
        return content

    @property
    def condition_options(self) -> tuple[str, ...]:
        own = {
            "tempo": self.tempos,
            "key": self.keys,
            "chords": self.chord_symbols and self.infilling,
        }
        return "bars", "meter", *(name for name, known in own.items() if known)

    def frame_prompt(self, blank: Score) -> Prompt:
        first = bars_of(self, replace(blank, last_tick=1), to_end=True)[0]
        if not blank.tempos:  # the model's choice
            first = first.only([])
        return Prompt(written(self, [first]), 0)

    def prompt(self, score: Score) -> Prompt:
        ids = written(self, bars_of(self, score, to_end=True))
        end = round(score.last_tick * self.positions_per_quarter / score.ticks_per_quarter)
        return Prompt(ids, end * TICKS_PER_POSITION)

    def to_score(self, ids: Ids) -> Score:
        return score_of(self, read_bars(self, ids))

    def filled(self, task: FillTask, names: list[str]) -> tuple[NDArray[np.bool_], Score]:
        return remi_filling.filled(self, task, names)

    def note_tokens(self, ids: Ids) -> NDArray[np.bool_]:
        kinds = self.meaning.kind[ids]
        is_new = latest(kinds == Kind.New) >= latest(kinds == Kind.Bar)
        is_note = np.isin(kinds, NOTE_KINDS)
        return is_note & is_new if (kinds == Kind.New).any() else is_note

    def fill_example(self, ids: Ids, generator: torch.Generator) -> Ids:
        return remi_filling.example(self, ids, generator)

    def owners(self, score: Score) -> dict[str, int]:
        players = self.ensemble.assign(score)
        return {
            self.ensemble.names[player]: int(score.notes.part[players == player][0])
            for player in np.unique(players[players >= 0]).tolist()
        }

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        begins: NDArray[np.bool_] = np.isin(self.meaning.kind[ids], (Kind.Pitch, Kind.PitchDrum))
        return begins

    @cached_property
    def id_pitches(self) -> Ids:
        """Pitches of all notes but drums."""
        return np.where(self.meaning.kind == Kind.Pitch, self.meaning.number, -1)

    def transpose(self, ids: Ids, semitones: int) -> Ids:
        moved = super().transpose(ids, semitones)
        if not (self.keys or self.chord_symbols) or not semitones:
            return moved
        table = np.arange(self.vocabulary_size)
        kind, number = self.meaning.kind, self.meaning.number
        for index in np.flatnonzero((kind == Kind.Key) | (kind == Kind.Chord)).tolist():
            own = int(number[index])
            if kind[index] == Kind.Key:
                other = own // 12 * 12 + (own + semitones) % 12
            else:
                other = transposed(own, semitones)
            table[index] = index + other - own
        return np.where(self.id_pitches[ids] >= 0, moved, table[ids])

    def pitches(self, ids: Ids) -> Ids:
        """Return the pitch of each token; velocity and duration have that of their note."""
        begins = self.onsets(ids)
        of_note = begins | np.isin(self.meaning.kind[ids], (Kind.Velocity, Kind.Duration))
        note = latest(begins).clip(min=0)  # where there is none, the first token
        return np.where(of_note, self.id_pitches[ids[note]], -1)

    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        meaning, kinds = self.meaning, self.meaning.kind[ids]

        def in_force(values: NDArray[Any], kind: int, default: float) -> Any:
            at = latest(kinds == kind)
            return np.where(at >= 0, values[ids[at]], default)

        bars = np.flatnonzero(kinds == Kind.Bar)
        lengths = in_force(meaning.number, Kind.TimeSig, 4 * self.positions_per_quarter)
        # A bar is as long as the time signature in force before the next bar says.
        starts = np.concatenate([[0, 0], np.cumsum(lengths[bars[1:] - 1])])[: len(bars) + 1]
        start = starts[np.cumsum(kinds == Kind.Bar)]  # of the bar of each token, in positions
        position, bar = latest(kinds == Kind.Position), latest(kinds == Kind.Bar)
        here = start + np.where(position > bar, meaning.number[ids[position]], 0)
        speed = in_force(meaning.quarter, Kind.Tempo, 60 / DEFAULT_TEMPO)
        before = np.concatenate([[60 / DEFAULT_TEMPO], speed])[: len(ids)]
        moved = np.diff(here, prepend=0) / self.positions_per_quarter  # quarters
        seconds: NDArray[np.float64] = np.cumsum(moved * before)
        return seconds

    def grammar(
        self, batch: int, *, seconds: float | None, n_prompt: int, start: int = 0
    ) -> RemiGrammar:
        start //= TICKS_PER_POSITION
        is_drum = [program == DRUMS for program in self.ensemble.programs]
        return RemiGrammar(
            self.meaning, is_drum, batch, seconds=seconds, n_prompt=n_prompt, start=start
        )

    def rules(self, options: ConstraintOptions) -> list[LogitsConstraint]:
        if options.instruments is None:
            return []
        try:
            chosen = self.ensemble.choose(options.instruments.split(","))
        except ValueError as error:
            raise UserError(str(error)) from error
        others = (self.meaning.kind == Kind.Program) & ~np.isin(self.meaning.number, chosen)
        return [Forbidden(np.flatnonzero(others).tolist(), self.vocabulary_size)]
