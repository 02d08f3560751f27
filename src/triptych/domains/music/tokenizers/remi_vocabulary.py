"""Settings and vocabulary of the music of several instruments: what each id says."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.chords import CHORDS, ROOTS
from triptych.domains.music.notes import DRUMS, N_PITCHES, Ids
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.instruments import Ensemble, program_names
from triptych.domains.music.tokenizers.remi_grammar import Kind, Meaning
from triptych.types import NonNegativeInt, PositiveInt

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
class RemiVocabulary(MusicTokenizer, ABC):
    """Ids of music of several instruments and drums."""

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
    def symbols(self) -> tuple[str, ...]:
        """Names of the ids: the kind, an underscore, and what the id says of it."""
        per, bins = self.positions_per_quarter, self.velocities
        fine = [*range(1, per * FINE_QUARTERS + 1)]
        halves = range(per * FINE_QUARTERS + per // 2, per * HALVES + 1, per // 2)
        durations = [*fine, *halves, *range(per * (HALVES + 1), per * LONGEST + 1, per)]
        values: dict[Kind, Iterable[Any]] = {
            Kind.TimeSig: [
                f"{count}/{unit}" for unit, counts in METERS.items() for count in counts
            ],
            Kind.Key: KEYS if self.keys else (),
            Kind.Position: range(MAX_QUARTERS * per),
            Kind.Tempo: TEMPOS if self.tempos else (),
            Kind.Chord: CHORDS if self.chord_symbols else (),
            Kind.Program: self.ensemble.names,
            Kind.Pitch: range(N_PITCHES),
            Kind.PitchDrum: range(N_PITCHES) if DRUMS in self.ensemble.programs else (),
            Kind.Velocity: [round((2 * n + 1) * N_PITCHES / 2 / bins) for n in range(bins)],
            Kind.Duration: durations,
        }
        single = [Kind.EOS, *[Kind.Fill, Kind.Past, Kind.New][: 3 * self.infilling], Kind.Bar]
        words = (f"{kind.name}_{value}" for kind, some in values.items() for value in some)
        return (*(kind.name for kind in single), *words)

    @cached_property
    def meaning(self) -> Meaning:
        """What each id says."""
        words = [symbol.partition("_")[::2] for symbol in self.symbols]
        kind = np.array([Kind[name] for name, _ in words])
        number = np.zeros(len(words), dtype=np.int64)
        quarter = np.zeros(len(words))
        lists = {"Program": self.ensemble.names, "Key": KEYS, "Chord": CHORDS}
        for index, (name, value) in enumerate(words):
            if name in lists:
                number[index] = list(lists[name]).index(value)
            elif name == "TimeSig":
                count, unit = map(int, value.split("/"))
                number[index] = count * 4 * self.positions_per_quarter // unit
            elif name == "Tempo":
                quarter[index] = 60 / float(value)
            elif value:
                number[index] = int(value)
        return Meaning(kind, number, quarter, self.positions_per_quarter)

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
