"""Grammar of the tokens of several instruments: what each id says, and which may follow which."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.music.chords import ROOTS
from triptych.domains.music.tokenizers.rules import Grammar

DEFAULT_TEMPO = 120.0
"""Quarter notes per minute before the first tempo."""
Kind = IntEnum(
    "Kind",
    "EOS Fill Past New Bar TimeSig Key Position Tempo Chord Program Pitch PitchDrum Velocity "
    "Duration",
    start=0,
)
"""Kinds of ids, by the beginning of their names."""
REAL = ("quarter", "seconds")
"""Parts of the grammar's state that are no whole numbers."""
NOTE_KINDS = (Kind.Position, Kind.Program, Kind.Pitch, Kind.PitchDrum, Kind.Velocity, Kind.Duration)
"""Kinds of the ids that write notes."""
METERS = {2: range(1, 7), 4: range(1, 13), 8: range(1, 25), 16: range(1, 49)}
"""Numerators of time signatures by denominator: bars of at most MAX_QUARTERS. A bar of another
signature has one of its length."""
MAX_QUARTERS = 12
"""Longest bar; a longer one is written as several."""
FINE_QUARTERS, HALVES, LONGEST = 4, 16, 64
"""Durations up to FINE_QUARTERS are whole positions, up to HALVES half quarters, then quarters."""
TEMPOS = sorted(
    {*range(20, 321, 5)}
    | {*range(40, 60, 2), *range(60, 72, 3), *range(72, 120, 4), *range(120, 144, 6)}
    | {*range(144, 209, 8)}
)
"""Quarter notes per minute: multiples of five, and the marks of a metronome."""
KEYS = [f"{root}:{mode}" for mode in ("major", "minor") for root in ROOTS]


@dataclass(frozen=True)
class Meaning:
    """What each id says, arrays [V]."""

    kind: NDArray[np.int64]
    """Value of `Kind`."""
    number: NDArray[np.int64]
    """Index of the instrument, pitch, velocity, index of the key or chord; in positions: length of
    a bar or a note, place in the bar. 0 for other kinds."""
    quarter: NDArray[np.float64]
    """Length of a quarter at the tempo, in seconds; 0 for other kinds."""
    per_quarter: int
    """Positions in a quarter."""
    is_drum: Sequence[bool]
    """Whether each instrument is the drums."""


class RemiGrammar(Grammar):
    """Constraint on sampled ids: what it allows is what encoding the decoded music gives again.

    Besides FOLLOWING: positions rise and lie in the bar; notes of a position rise by instrument,
    then by pitch. A piece begins with a tempo, and no tempo is repeated. Drums have drum pitches.
    Notes of one pitch may overlap: `RemiTokenizer.to_score` cuts the first.

    meaning: of the ids. seconds: of new music after which only END may come. start: where new music
    begins, in positions; no new note is before it. A prompt's time signature, key and tempo go on;
    END comes only after the seconds then, and no new bar is empty before.
    """

    START = len(Kind)
    """In place of the kind of an earlier id, at the start of a piece."""
    NOTES: ClassVar[tuple[int, ...]] = (Kind.Pitch, Kind.PitchDrum)
    FOLLOWING: ClassVar[dict[int, tuple[int, ...]]] = {
        START: (Kind.Bar,),
        Kind.Bar: (Kind.TimeSig,),
        Kind.TimeSig: (Kind.Key, Kind.Position, Kind.Bar),
        Kind.Key: (Kind.Position, Kind.Bar),
        Kind.Position: (Kind.Tempo, Kind.Chord, Kind.Program),
        Kind.Tempo: (Kind.Chord, Kind.Program, Kind.Position, Kind.Bar),
        Kind.Chord: (Kind.Program, Kind.Position, Kind.Bar),
        Kind.Program: NOTES,
        Kind.Pitch: (Kind.Velocity, Kind.Duration),
        Kind.PitchDrum: (Kind.Velocity, Kind.Duration),
        Kind.Velocity: (Kind.Duration,),
        Kind.Duration: (*NOTES, Kind.Program, Kind.Position, Kind.Bar, Kind.EOS),
        Kind.New: (Kind.Position, Kind.Bar, Kind.EOS),
        Kind.EOS: (Kind.EOS,),
    }
    """Kinds that may follow each kind."""
    INITIAL: ClassVar[dict[str, float]] = {
        "last": START,  # kind of the last id
        "position": -1,  # in the bar, -1 before the first
        "player": -1,  # at this position, -1 before the first
        "pitch": -1,  # of this player at this position, -1 before the first
        "tempo": -1,  # id in force, -1 for none
        "meter": -1,  # id of the time signature in force, -1 for none
        "quarter": 60 / DEFAULT_TEMPO,  # length in seconds
        "bar": 0,  # length of a bar, in positions; the first one starts at 0
        "begin": 0,  # of this bar, in positions
        "now": 0,  # positions from the start of the piece
        "seconds": 0.0,  # of new music
    }
    """State at the start of a piece."""

    def __init__(
        self,
        meaning: Meaning,
        batch: int,
        *,
        seconds: float | None = None,
        n_prompt: int = 0,
        start: int = 0,
    ) -> None:
        super().__init__(n_prompt)
        self.max_seconds, self.start = seconds, start
        self.per_quarter = meaning.per_quarter
        follows = np.zeros((len(Kind) + 1, len(Kind)), dtype=bool)
        for before, after in self.FOLLOWING.items():
            follows[before, list(after)] = True
        if (meaning.kind == Kind.Velocity).any():
            follows[[Kind.Pitch, Kind.PitchDrum], Kind.Duration] = False
        self.has_tempos = bool((meaning.kind == Kind.Tempo).any())
        self.tables = {
            "kind": torch.tensor(meaning.kind),
            "number": torch.tensor(meaning.number),
            "quarter": torch.tensor(meaning.quarter),
            "follows": torch.tensor(follows[:, meaning.kind]),  # [K + 1, V]
            "is_drum": torch.tensor(meaning.is_drum),
        }
        self.state = {
            name: torch.full((batch,), value, dtype=torch.float64 if name in REAL else torch.int64)
            for name, value in self.INITIAL.items()
        }

    def forbidden(self) -> Tensor:
        kind, number = self.tables["kind"], self.tables["number"]  # [V]
        state = {name: value[:, None] for name, value in self.state.items()}  # [B, 1]
        is_drum = self.tables["is_drum"][state["player"].clamp(min=0)]  # [B, 1]
        is_pitch = (kind == Kind.Pitch) | (kind == Kind.PitchDrum)
        is_position, ids = kind == Kind.Position, torch.arange(len(kind), device=kind.device)
        in_head = (state["last"] == Kind.TimeSig) | (state["last"] == Kind.Key)  # [B, 1]
        forbidden = ~self.tables["follows"][self.state["last"]]  # [B, V]
        early = (number <= state["position"]) | (state["begin"] + number < self.start)
        forbidden |= is_position & (early | (number >= state["bar"]))
        forbidden |= ((kind == Kind.Pitch) & is_drum) | ((kind == Kind.PitchDrum) & ~is_drum)
        forbidden |= is_pitch & (number <= state["pitch"])
        forbidden |= (kind == Kind.Program) & (number <= state["player"])
        in_prompt = (state["now"] < self.start) & (state["last"] == Kind.Duration)
        forbidden |= in_prompt & (is_pitch | (kind == Kind.Program))
        forbidden |= ids == state["tempo"]
        if self.has_tempos:
            too_early = (kind == Kind.Program) | (kind == Kind.Chord) | (is_position & (number > 0))
            too_early = too_early | ((kind == Kind.Bar) & in_head)  # [B, V]
            forbidden |= too_early & (state["tempo"] < 0)
        if self.n_prompt:  # the frame of the prompt goes on
            other = (kind == Kind.TimeSig) & (ids != state["meter"]) & (state["meter"] >= 0)
            other |= (kind == Kind.Tempo) & (state["tempo"] >= 0)
            forbidden |= other | (kind == Kind.Key)
        if self.max_seconds is not None:
            over = state["seconds"] >= self.max_seconds
            forbidden = torch.where(over, kind != Kind.EOS, forbidden)
            if self.n_prompt:  # a continuation goes on, and has no empty bar
                has_room = in_head & (state["begin"] + state["bar"] > self.start)
                goes_on = (kind == Kind.EOS) | ((kind == Kind.Bar) & has_room)  # [B, V]
                forbidden |= goes_on & ~over
        return forbidden

    def read(self, token: Tensor, *, new: bool) -> None:
        state = self.state
        names = ("kind", "number", "quarter")
        kind, number, quarter = (self.tables[name][token] for name in names)  # [B]
        is_bar, is_position = kind == Kind.Bar, kind == Kind.Position
        is_pitch = (kind == Kind.Pitch) | (kind == Kind.PitchDrum)
        state["begin"] = state["begin"] + torch.where(is_bar, state["bar"], 0)
        state["bar"] = torch.where(kind == Kind.TimeSig, number, state["bar"])
        here = state["begin"] + torch.where(is_position, number, 0)
        now = torch.where(is_bar | is_position, here, state["now"])
        if new:
            positions = now.clamp(min=self.start) - state["now"].clamp(min=self.start)
            state["seconds"] = state["seconds"] + positions / self.per_quarter * state["quarter"]
        state["now"] = now
        state["tempo"] = torch.where(kind == Kind.Tempo, token, state["tempo"])
        state["meter"] = torch.where(kind == Kind.TimeSig, token, state["meter"])
        state["quarter"] = torch.where(kind == Kind.Tempo, quarter, state["quarter"])
        restarts = is_bar | (kind == Kind.New)
        state["position"] = torch.where(is_position, number, state["position"])
        state["position"] = torch.where(restarts, -1, state["position"])
        other = is_position | restarts | (kind == Kind.Program)
        state["pitch"] = torch.where(other, -1, state["pitch"])
        state["pitch"] = torch.where(is_pitch, number, state["pitch"])
        state["player"] = torch.where(is_position | restarts, -1, state["player"])
        state["player"] = torch.where(kind == Kind.Program, number, state["player"])
        state["last"] = kind
        is_past = kind == Kind.Past  # the music before bars that are made anew starts
        for name, value in self.INITIAL.items():
            state[name] = torch.where(is_past, torch.full_like(state[name], value), state[name])


class ScriptedGrammar(Grammar):
    """Grammar of bars of which a part is given: the given ids come, and free ones between them.

    grammar: of the free ids. script: ids of the given parts, each from Bar to New. free: whether
    each id may come in free parts, bool [V]. A free part ends with the Bar of the next given part,
    the last one with END.
    """

    def __init__(
        self, grammar: RemiGrammar, script: Sequence[int], free: NDArray[np.bool_]
    ) -> None:
        super().__init__(grammar.n_prompt)
        self.grammar = grammar
        kind = grammar.tables["kind"]
        zeros = torch.zeros_like(grammar.state["now"])
        self.n_given = len(script)
        self.tables = {
            "kind": kind,
            "script": torch.tensor([*script, 0]),
            "free": torch.from_numpy(free) | (kind == Kind.Bar) | (kind == Kind.EOS),
        }
        self.state = {"place": zeros, "is_free": zeros.bool()}

    def __call__(self, values: Tensor) -> Tensor:
        self.inner = self.grammar(values)  # [B, V]
        return super().__call__(values)

    def read(self, token: Tensor, *, new: bool) -> None:
        if not new:
            return
        state, kind = self.state, self.tables["kind"][token]  # [B]
        resumes = state["is_free"] & (kind == Kind.Bar)
        state["place"] = state["place"] + (~state["is_free"] | resumes)
        state["is_free"] = (state["is_free"] & ~resumes) | (kind == Kind.New)

    def forbidden(self) -> Tensor:
        kind, place = self.tables["kind"], self.state["place"]
        given = self.tables["script"][place]  # [B]
        forced = torch.arange(len(kind), device=kind.device) != given[:, None]  # [B, V]
        is_last = (place >= self.n_given)[:, None]
        other_end = torch.where(is_last, kind == Kind.Bar, kind == Kind.EOS)  # [B, V]
        free = self.inner | ~self.tables["free"] | other_end
        return torch.where(self.state["is_free"][:, None], free, forced)
