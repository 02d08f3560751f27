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

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych.decoding.constraints import Forbidden
from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.chords import CHORDS
from triptych.domains.music.conditions import ConstraintOptions
from triptych.domains.music.notes import DRUMS, N_PITCHES, Ids, Score, latest
from triptych.domains.music.tokenizers import remi_filling
from triptych.domains.music.tokenizers.base import MusicTokenizer, Prompt
from triptych.domains.music.tokenizers.instruments import Ensemble, program_names
from triptych.domains.music.tokenizers.remi_bars import (
    TICKS_PER_POSITION,
    bars_of,
    read_bars,
    score_of,
    written,
)
from triptych.domains.music.tokenizers.remi_grammar import (
    FINE_QUARTERS,
    HALVES,
    KEYS,
    LONGEST,
    MAX_QUARTERS,
    METERS,
    NOTE_KINDS,
    TEMPOS,
    Kind,
    Meaning,
    RemiGrammar,
)
from triptych.errors import UserError
from triptych.types import NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class RemiTokenizer(MusicTokenizer):
    """Music of several instruments and drums, by bars; content is the ids themselves.

    Encoding takes a while, so that reading, which several processes share, does it.
    """

    instruments: tuple[str, ...] | None = None
    """Instruments in the order of their notes: names of General MIDI, program numbers from 0 to
    127, or drums; a program given twice makes two instruments, as the violins of a quartet. Other
    instruments are left out. null for every program once, and drums."""
    positions_per_quarter: PositiveInt = 12
    """Positions in a quarter, a multiple of four: 12 writes sixteenths and triplets exactly."""
    velocities: NonNegativeInt = 0
    """Number of velocities; 0 writes none, and every note sounds equally loud."""
    tempos: bool = True
    """Whether tempos are written; music without them is played at 120 quarters per minute."""
    keys: bool = False
    """Whether key signatures are written."""
    chord_symbols: bool = False
    """Whether chord symbols are written, before the notes of their position."""
    infilling: bool = False
    """Whether there are ids for bars that are made anew; see `data.infilling_share`."""

    name = "remi"
    content = "ids of several instruments"
    constraint_options = ("instruments",)
    end = 0
    pitch_range = 21, 108
    unit = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.instruments is not None and not self.instruments:
            raise ValueError("instruments is empty; expected names of instruments, or null for all")
        if self.positions_per_quarter % 4:
            raise ValueError(
                f"positions_per_quarter must be a multiple of 4, got {self.positions_per_quarter}"
            )
        _ = self.ensemble  # refuses unknown names

    @cached_property
    def ensemble(self) -> Ensemble:
        """Instruments of the music."""
        return Ensemble.of(self.instruments or (*program_names(), "drums"))

    @property
    def melody_program(self) -> int:
        """Program of the piano where it plays, else of the first instrument but drums."""
        programs = [program for program in self.ensemble.programs if program != DRUMS]
        return 0 if 0 in programs or not programs else programs[0]

    @cached_property
    def _words(self) -> list[tuple[Kind, Any, int]]:
        """Kind, text and number of each id."""
        per, bins = self.positions_per_quarter, self.velocities
        fine = [*range(1, per * FINE_QUARTERS + 1)]
        halves = range(per * FINE_QUARTERS + per // 2, per * HALVES + 1, per // 2)
        durations = [*fine, *halves, *range(per * (HALVES + 1), per * LONGEST + 1, per)]

        def own(numbers: Iterable[int]) -> Iterable[tuple[int, int]]:
            return ((number, number) for number in numbers)

        def placed(names: Iterable[str]) -> Iterable[tuple[str, int]]:
            return ((name, place) for place, name in enumerate(names))

        values: dict[Kind, Iterable[tuple[Any, int]]] = {
            Kind.TimeSig: [
                (f"{count}/{unit}", count * 4 * per // unit)
                for unit, counts in METERS.items()
                for count in counts
            ],
            Kind.Key: placed(KEYS if self.keys else ()),
            Kind.Position: own(range(MAX_QUARTERS * per)),
            Kind.Tempo: [(tempo, 0) for tempo in TEMPOS if self.tempos],
            Kind.Chord: placed(CHORDS if self.chord_symbols else ()),
            Kind.Program: placed(self.ensemble.names),
            Kind.Pitch: own(range(N_PITCHES)),
            Kind.PitchDrum: own(range(N_PITCHES) if DRUMS in self.ensemble.programs else ()),
            Kind.Velocity: own(round((2 * n + 1) * N_PITCHES / 2 / bins) for n in range(bins)),
            Kind.Duration: own(durations),
        }
        single = [Kind.EOS, *[Kind.Fill, Kind.Past, Kind.New][: 3 * self.infilling], Kind.Bar]
        words: list[tuple[Kind, Any, int]] = [(kind, "", 0) for kind in single]
        return words + [(kind, *word) for kind, some in values.items() for word in some]

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Names of the ids: the kind, an underscore, and what the id says of it."""
        return tuple(f"{kind.name}_{text}".rstrip("_") for kind, text, _ in self._words)

    @cached_property
    def meaning(self) -> Meaning:
        """What each id says."""
        quarter = [60 / text if kind == Kind.Tempo else 0.0 for kind, text, _ in self._words]
        kind, _, number = zip(*self._words, strict=True)
        is_drum = [program == DRUMS for program in self.ensemble.programs]
        columns = np.array(kind), np.array(number), np.array(quarter)
        return Meaning(*columns, self.positions_per_quarter, is_drum)

    @cached_property
    def id_of(self) -> dict[str, int]:
        """Id of each symbol."""
        return {symbol: index for index, symbol in enumerate(self.symbols)}

    def nearest(self, kind: Kind, values: NDArray[Any]) -> Ids:
        """Return the ids of a kind whose numbers are the nearest to some values."""
        ids = np.flatnonzero(self.meaning.kind == kind)
        numbers = self.meaning.number[ids]
        after = np.searchsorted(numbers, values).clip(1, len(ids) - 1)
        nearer: Ids = after - (values - numbers[after - 1] < numbers[after] - values)
        return np.asarray(ids[nearer])

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

    filled = remi_filling.filled
    fill_example = remi_filling.example

    def note_tokens(self, ids: Ids) -> NDArray[np.bool_]:
        kinds = self.meaning.kind[ids]
        is_new = latest(kinds == Kind.New) >= latest(kinds == Kind.Bar)
        is_note = np.isin(kinds, NOTE_KINDS)
        return is_note & is_new if (kinds == Kind.New).any() else is_note

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
        kind, number = self.meaning.kind, self.meaning.number
        place = number - (kind == Kind.Chord)  # among keys or chords of twelve roots, -1 for none
        turned = place // 12 * 12 + (place + semitones) % 12
        turns = np.isin(kind, (Kind.Key, Kind.Chord)) & (place >= 0)
        other = np.arange(len(kind)) + np.where(turns, turned - place, 0)  # [V]
        return np.where(self.id_pitches[ids] >= 0, moved, other[ids])

    def pitches(self, ids: Ids) -> Ids:
        """Return the pitch of each token; velocity and duration have that of their note."""
        begins = self.onsets(ids)
        of_note = begins | np.isin(self.meaning.kind[ids], (Kind.Velocity, Kind.Duration))
        note = latest(begins).clip(min=0)  # where there is none, the first token
        return np.where(of_note, self.id_pitches[ids[note]], -1)

    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        numbers, kinds = self.meaning.number[ids], self.meaning.kind[ids]
        bars, meter = np.flatnonzero(kinds == Kind.Bar), latest(kinds == Kind.TimeSig)
        lengths = np.where(meter >= 0, numbers[meter], 4 * self.positions_per_quarter)
        # A bar is as long as the time signature in force before the next bar says.
        starts = np.concatenate([[0, 0], np.cumsum(lengths[bars[1:] - 1])])[: len(bars) + 1]
        start = starts[np.cumsum(kinds == Kind.Bar)]  # of the bar of each token, in positions
        position, bar = latest(kinds == Kind.Position), latest(kinds == Kind.Bar)
        here = start + np.where(position > bar, numbers[position], 0)
        return self.to_score(ids).seconds(here * TICKS_PER_POSITION)

    def grammar(
        self, batch: int, *, seconds: float | None, n_prompt: int, start: int = 0
    ) -> RemiGrammar:
        start //= TICKS_PER_POSITION
        return RemiGrammar(self.meaning, batch, seconds=seconds, n_prompt=n_prompt, start=start)

    def rules(self, options: ConstraintOptions) -> list[LogitsConstraint]:
        if options.instruments is None:
            return []
        try:
            chosen = self.ensemble.choose(options.instruments.split(","))
        except ValueError as error:
            raise UserError(str(error)) from error
        others = (self.meaning.kind == Kind.Program) & ~np.isin(self.meaning.number, chosen)
        return [Forbidden(np.flatnonzero(others).tolist(), self.vocabulary_size)]
