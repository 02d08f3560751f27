"""Grammar of the tokens of several instruments: which id may follow which.

The ids are those of `RemiTokenizer`; the grammar knows them by their `Meaning` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.music.tokenizers.rules import Grammar

DRUM_RANGE = (27, 88)
"""Lowest and highest drum of General MIDI 2."""
DEFAULT_TEMPO = 120.0
"""Quarter notes per minute before the first tempo."""
Kind = IntEnum(
    "Kind", "EOS PAD Bar TimeSig Position Tempo Program Pitch PitchDrum Velocity Duration", start=0
)
"""Kinds of ids, by the beginning of their names."""


@dataclass(frozen=True)
class Meaning:
    """What each id says, arrays [V]; 0 where an id says nothing of the kind."""

    kind: NDArray[np.int64]
    """Value of `Kind`."""
    number: NDArray[np.int64]
    """Index of the instrument, pitch, or position in the bar."""
    bar: NDArray[np.float64]
    """Length of a bar of the time signature, in quarters."""
    step: NDArray[np.float64]
    """Length of a position in it, in quarters."""
    quarter: NDArray[np.float64]
    """Length of a quarter at the tempo, in seconds."""


class RemiGrammar(Grammar):
    """Constraint on sampled ids: what it allows is what encoding the decoded music gives again.

    A bar has a time signature. Its positions rise and lie in the bar; notes of a position rise by
    instrument, then by pitch. A tempo precedes the notes of its position, a piece begins with one,
    and no tempo is repeated. Drums have drum pitches. A piece ends after a note. Where `seconds` of
    new music are over, only END may come.

    Notes of one pitch may overlap: `RemiTokenizer.to_midi` cuts the first.

    meaning: of the ids. is_drum: whether each instrument is the drums.
    """

    START = len(Kind)
    """In place of the kind of an earlier id, at the start of a piece."""
    FOLLOWING: ClassVar[dict[int, tuple[int, ...]]] = {
        START: (Kind.Bar,),
        Kind.Bar: (Kind.TimeSig,),
        Kind.TimeSig: (Kind.Position, Kind.Bar),
        Kind.Position: (Kind.Tempo, Kind.Program),
        Kind.Tempo: (Kind.Program, Kind.Position, Kind.Bar),
        Kind.Program: (Kind.Pitch, Kind.PitchDrum),
        Kind.Pitch: (Kind.Velocity, Kind.Duration),
        Kind.PitchDrum: (Kind.Velocity, Kind.Duration),
        Kind.Velocity: (Kind.Duration,),
        Kind.Duration: (Kind.Program, Kind.Position, Kind.Bar, Kind.EOS),
        Kind.EOS: (Kind.EOS,),
    }
    """Kinds that may follow each kind."""

    def __init__(
        self,
        meaning: Meaning,
        is_drum: Sequence[bool],
        batch: int,
        *,
        seconds: float | None = None,
        n_prompt: int = 0,
    ) -> None:
        super().__init__(n_prompt)
        self.max_seconds = seconds
        follows = np.zeros((len(Kind) + 1, len(Kind)), dtype=bool)
        for before, after in self.FOLLOWING.items():
            follows[before, list(after)] = True
        if (meaning.kind == Kind.Velocity).any():
            follows[[Kind.Pitch, Kind.PitchDrum], Kind.Duration] = False
        self.has_tempos = bool((meaning.kind == Kind.Tempo).any())
        self.tables = {
            **{name: torch.tensor(values) for name, values in vars(meaning).items()},
            "follows": torch.tensor(follows[:, meaning.kind]),  # [K + 1, V]
            "is_drum": torch.tensor(list(is_drum)),
            "highest": torch.tensor([DRUM_RANGE[1] if drum else 127 for drum in is_drum]),
        }
        whole = torch.full((batch,), -1)
        real = torch.zeros(batch, dtype=torch.float64)
        self.state = {
            "last": whole + 1 + self.START,  # kind of the last id
            "position": whole,  # in the bar, -1 before the first
            "player": whole,  # at this position, -1 before the first
            "pitch": whole,  # of this player at this position, -1 before the first
            "tempo": whole,  # id in force, -1 for none
            "quarter": real + 60 / DEFAULT_TEMPO,  # length in seconds
            "bar": real + 4,  # length of a bar, in quarters
            "step": real + 1,  # length of a position, in quarters
            "start": real - 4,  # of this bar, in quarters; the first one starts at 0
            "now": real,  # quarters from the start of the piece
            "seconds": real,  # of new music
        }

    def forbidden(self) -> Tensor:
        kind, number = self.tables["kind"], self.tables["number"]  # [V]
        state = {name: value[:, None] for name, value in self.state.items()}  # [B, 1]
        player = state["player"].clamp(min=0)
        is_drum = self.tables["is_drum"][player]  # [B, 1]
        is_pitch = (kind == Kind.Pitch) | (kind == Kind.PitchDrum)
        forbidden = ~self.tables["follows"][self.state["last"]]  # [B, V]
        outside = number * state["step"] > state["bar"] - state["step"] / 2
        forbidden |= (kind == Kind.Position) & ((number <= state["position"]) | outside)
        forbidden |= ((kind == Kind.Pitch) & is_drum) | ((kind == Kind.PitchDrum) & ~is_drum)
        forbidden |= is_pitch & (number <= state["pitch"])
        full = state["pitch"] >= self.tables["highest"][player]  # no pitch is left above the last
        earlier = (number < state["player"]) | ((number == state["player"]) & full)
        forbidden |= (kind == Kind.Program) & earlier
        forbidden |= torch.arange(len(kind), device=kind.device) == state["tempo"]
        if self.has_tempos:
            too_early = (kind == Kind.Program) | ((kind == Kind.Position) & (number > 0))
            too_early = too_early | ((kind == Kind.Bar) & (state["last"] == Kind.TimeSig))  # [B, V]
            forbidden |= too_early & (state["tempo"] < 0)
        if self.max_seconds is not None:
            over = state["seconds"] >= self.max_seconds
            forbidden = torch.where(over, kind != Kind.EOS, forbidden)
        return forbidden

    def read(self, token: Tensor, *, new: bool) -> None:
        state = self.state
        kind, number, bar, step, quarter = (
            self.tables[name][token] for name in ("kind", "number", "bar", "step", "quarter")
        )
        is_bar, is_position = kind == Kind.Bar, kind == Kind.Position
        is_pitch = (kind == Kind.Pitch) | (kind == Kind.PitchDrum)
        state["start"] = state["start"] + torch.where(is_bar, state["bar"], 0)
        state["bar"] = torch.where(kind == Kind.TimeSig, bar, state["bar"])
        state["step"] = torch.where(kind == Kind.TimeSig, step, state["step"])
        here = state["start"] + torch.where(is_position, number * state["step"], 0)
        now = torch.where(is_bar | is_position, here, state["now"])
        if new:
            state["seconds"] = state["seconds"] + (now - state["now"]) * state["quarter"]
        state["now"] = now
        state["tempo"] = torch.where(kind == Kind.Tempo, token, state["tempo"])
        state["quarter"] = torch.where(kind == Kind.Tempo, quarter, state["quarter"])
        state["position"] = torch.where(is_position, number, state["position"])
        state["position"] = torch.where(is_bar, -1, state["position"])
        other = (kind == Kind.Program) & (number != state["player"])
        state["pitch"] = torch.where(is_bar | is_position | other, -1, state["pitch"])
        state["pitch"] = torch.where(is_pitch, number, state["pitch"])
        state["player"] = torch.where(is_bar | is_position, -1, state["player"])
        state["player"] = torch.where(kind == Kind.Program, number, state["player"])
        state["last"] = kind
