"""Instruments of General MIDI by name or number, and the ensembles that are made of them."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from triptych.domains.music.notes import DRUMS, Ids, Score

N_PROGRAMS = 128


@cache
def program_names() -> tuple[str, ...]:
    """Return the names of the 128 programs of General MIDI in lower case, such as `violin`."""
    from pretty_midi import program_to_instrument_name

    return tuple(program_to_instrument_name(number).lower() for number in range(N_PROGRAMS))


def program_of(instrument: str) -> int:
    """Return the program of an instrument's name, of a number from 0 to 127, or of `drums`.

    Raises ValueError for any other text, with the nearest names.
    """
    text = instrument.strip().lower()
    if text == "drums":
        return DRUMS
    if text in program_names():
        return program_names().index(text)
    if text.isascii() and text.isdigit() and int(text) < N_PROGRAMS:
        return int(text)
    near = [name for name in program_names() if text and text in name]
    near = near or difflib.get_close_matches(text, (*program_names(), "drums"))
    raise ValueError(
        f"instruments has {instrument.strip()!r}; expected names of General MIDI such as violin, "
        "program numbers from 0 to 127, or drums"
        + (f"; did you mean {' or '.join(near[:3])}?" if near else "")
    )


@dataclass(frozen=True)
class Ensemble:
    """Instruments in a fixed order; one program may occur several times, such as two violins."""

    programs: tuple[int, ...]
    """Program of each instrument, DRUMS for the drums."""
    names: tuple[str, ...]
    """Different names, such as violin, violin 2, viola and cello."""

    @classmethod
    def of(cls, instruments: Sequence[str]) -> Ensemble:
        """Return the ensemble of some instruments; raises ValueError as `program_of` does."""
        programs = tuple(map(program_of, instruments))
        if programs.count(DRUMS) > 1:
            raise ValueError("instruments has drums several times; expected them once")
        words = ["drums" if program == DRUMS else program_names()[program] for program in programs]
        names = []
        for index, word in enumerate(words):
            number = words[: index + 1].count(word)
            names.append(word if number == 1 else f"{word} {number}")
        return cls(programs, tuple(names))

    def players(self, program: int) -> list[int]:
        """Return the indices of the instruments with a program."""
        return [index for index, own in enumerate(self.programs) if own == program]

    def choose(self, instruments: Sequence[str]) -> list[int]:
        """Return the indices of some of the instruments; a name given twice is the second of two.

        Raises ValueError for an instrument that is unknown or not in the ensemble.
        """
        chosen: list[int] = []
        for instrument in instruments:
            name = instrument.strip().lower()
            named = [self.names.index(name)] if name in self.names else []
            program = self.programs[named[0]] if named else program_of(instrument)
            players = self.players(program)
            free = [index for index in named + players if index not in chosen]
            if not free:
                some = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
                raise ValueError(
                    f"instruments has {instrument.strip()!r}"
                    + (" too many times" if players else "")
                    + f", but this model plays {some}"
                )
            chosen.append(free[0])
        return chosen

    def assign(self, score: Score) -> Ids:
        """Return the index of the instrument that plays each note of a score, -1 for none: [N].

        A part with the name of an instrument is its part. Otherwise the first part with a program
        is for the first instrument with it, and so on; further parts join the last one. Notes of
        other programs are left out.
        """
        notes = score.notes
        assigned = np.full(len(notes), -1)
        next_player: Counter[int] = Counter()
        for number, part in enumerate(score.parts):
            named = part.name.strip().lower()
            own = notes.part == number
            for program in np.unique(notes.program[own]).tolist():
                players = self.players(program)
                if not players:
                    continue
                player = players[min(next_player[program], len(players) - 1)]
                player = next((own for own in players if self.names[own] == named), player)
                next_player[program] = players.index(player) + 1
                assigned[own & (notes.program == program)] = player
        return assigned
