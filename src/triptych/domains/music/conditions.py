"""Options of new music, its constraints and its frame, and what their texts mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from triptych.domains.music.chords import SEMITONES, STEPS, chord_index
from triptych.errors import UserError
from triptych.types import Checked, PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from triptych.domains.music.notes import Score

ACCIDENTALS = {"": 0, "#": 1, "b": -1}
SCALES = {
    "major": (0, 2, 4, 5, 7, 9, 11),
    "natural_minor": (0, 2, 3, 5, 7, 8, 10),
    "harmonic_minor": (0, 2, 3, 5, 7, 8, 11),
    "minor": (0, 2, 3, 5, 7, 8, 10, 11),
    "chromatic": tuple(range(12)),
}
"""Semitones of each scale above its tonic; minor is the natural and the harmonic one together."""
TEXTBOOK = "textbook"
"""Value of `ranges` for the usual ranges of the voices."""
BLANK_TICKS = 480
"""Ticks of a quarter of a piece without notes."""


@dataclass(frozen=True, kw_only=True)
class ConstraintOptions(Checked):
    """Constraints on sampled music. They hold for new notes; a primer is never changed."""

    scale: str | None = None
    """Scale of the notes, such as C:major, F#:natural_minor, Bb:harmonic_minor, A:minor (natural
    and harmonic together) or C:chromatic; null for all notes."""
    ranges: str | None = None
    """Lowest and highest MIDI pitch, such as 48-84, or textbook for the usual ranges of the voices
    of chorales; null for all pitches."""
    no_parallels: bool = False
    """Chorales: forbid parallel fifths and octaves between any two voices."""
    instruments: str | None = None
    """Instruments that play, such as violin,violin,viola,cello or 40,41,42 or drums: names or
    numbers of General MIDI separated by commas, all of them instruments of the model; null for all
    of the model's."""
    longest_note: PositiveFloat | None = None
    """Performances: seconds after which a note that still sounds ends, at the next event, which may
    be a second later; null for the model's choice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None:
            parse_scale(self.scale)
        if self.ranges not in (None, TEXTBOOK):
            parse_range(self.ranges)


@dataclass(frozen=True, kw_only=True)
class FrameOptions(Checked):
    """Frame of new music; that of a given file, a primer and a melody comes from the file."""

    bars: PositiveInt | None = None
    """Number of bars of a new piece; null for seconds or length."""
    tempo: PositiveFloat | None = None
    """Quarter notes per minute of a new piece; null for the model's choice."""
    meter: str | None = None
    """Time signature of a new piece, such as 3/4; null for the model's choice."""
    key: str | None = None
    """Key of a new piece, such as G:major or C#:minor, for models that were trained with keys; null
    for the model's choice."""
    chords: str | None = None
    """Chords of a new or given piece for models that were trained with chords: one for each bar, as
    "C:maj G:7 A:min F:maj", or bars of several as "C G | Am F"; they are repeated up to the last
    bar. null for those of the given file, or none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.meter is not None:
            _meter(self.meter)
        if self.key is not None:
            signature_of(self.key)
        if self.chords is not None:
            chord_bars(self.chords)

    def blank(self) -> Score | None:
        """Return a piece of this frame without notes; None where nothing is asked for."""
        from triptych.domains.music.notes import Notes, Score

        n_bars = self.bars
        if self.chords is not None:
            n_bars = n_bars or len(chord_bars(self.chords))
        if (n_bars, self.tempo, self.meter, self.key) == (None,) * 4:
            return None
        count, unit = _meter(self.meter or "4/4")
        last = (n_bars or 0) * 4 * count * BLANK_TICKS // unit
        score = Score(
            "the piece",
            [],
            Notes.of([]),
            BLANK_TICKS,
            last,
            [] if self.tempo is None else [(0, round(60e6 / self.tempo))],
            [(0, count, unit)] if self.meter or n_bars else [],
            [] if self.key is None else [(0, *signature_of(self.key))],
        )
        if self.chords is not None:
            score = replace(score, chords=chords_at(self.chords, score.bars().tolist()))
        return score


def check_known(options: Checked, kind: type[Checked], known: Sequence[str], name: str) -> None:
    """Raise UserError for a constraint, or a part of the frame, that a model does not know.

    kind: ConstraintOptions or FrameOptions. known: fields of it. name: of the model's tokenizer.
    """
    for field in fields(kind):
        if getattr(options, field.name) not in (None, False) and field.name not in known:
            raise UserError(
                f"{field.name} cannot be given to this model, whose music is written as {name} "
                f"without it; it knows {', '.join(known) or 'none'}"
            )


def parse_scale(text: str) -> frozenset[int]:
    """Return the pitch classes of a scale such as `F#:minor`; raises ValueError for other texts."""
    letter, alter, scale = _tonic(text, "scale", SCALES)
    return frozenset((SEMITONES[letter] + alter + step) % 12 for step in SCALES[scale])


def parse_range(text: str) -> tuple[int, int]:
    """Return the lowest and highest pitch of a range such as 48-84; ValueError for other texts."""
    from triptych.domains.music.notes import N_PITCHES  # numpy, which --help does not need

    found = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)
    low, high = (int(found[1]), int(found[2])) if found else (1, 0)
    if not low <= high < N_PITCHES:
        raise ValueError(
            f"ranges is {text!r}; expected a lowest and a highest MIDI pitch of at most "
            f"{N_PITCHES - 1} such as 48-84, or {TEXTBOOK}"
        )
    return low, high


def _tonic(text: str, option: str, kinds: Iterable[str]) -> tuple[str, int, str]:
    """Return letter, alteration in semitones and kind of a scale or key; ValueError for others."""
    tonic, _, kind = text.strip().partition(":")
    letter, accidental = tonic[:1].upper(), tonic[1:]
    if letter not in SEMITONES or accidental not in ACCIDENTALS or kind not in kinds:
        raise ValueError(
            f"{option} is {text!r}; expected a note from A to G, perhaps with # or b, a colon, and "
            f"one of {', '.join(kinds)}, such as F#:minor"
        )
    return letter, ACCIDENTALS[accidental], kind


def _meter(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d{1,3})\s*/\s*(1|2|4|8|16|32)\s*", text)
    if found is None or not 0 < int(found[1]) < 256:
        raise ValueError(
            f"meter is {text!r}; expected a time signature such as 3/4 or 6/8, whose "
            "denominator is 1, 2, 4, 8, 16 or 32"
        )
    return int(found[1]), int(found[2])


def signature_of(key: str) -> tuple[int, bool]:
    """Return sharps, flats below zero, and whether it is minor, of a key such as Bb:minor.

    Raises ValueError for other texts.
    """
    letter, alter, mode = _tonic(key, "key", ("major", "minor"))
    sharps = STEPS.index(letter) - 1 + 7 * alter - 3 * (mode == "minor")
    return sharps - 12 * (sharps > 7) + 12 * (sharps < -7), mode == "minor"


def chord_bars(text: str) -> list[list[str]]:
    """Return the chord symbols of each bar of `FrameOptions.chords`; ValueError for other texts."""
    bars = text.strip().strip("|").split("|") if "|" in text else text.split()
    chords = [bar.split() for bar in bars]
    wrong = [symbol for bar in chords for symbol in bar if chord_index(symbol) is None]
    if wrong or not any(chords):
        raise ValueError(
            f"chords has {wrong[0] if wrong else text!r}; expected symbols such as C:maj, F#:min7, "
            "Bb7 or N for none, one for each bar, or bars of several between |"
        )
    return chords


def chords_at(text: str, bars: Sequence[int]) -> list[tuple[int, str]]:
    """Return chords as `Score.chords`, repeated to the end; bars: starts and end, in ticks."""
    written = chord_bars(text)
    return [
        (start + (stop - start) * place // len(symbols), symbol)
        for number, (start, stop) in enumerate(pairwise(bars))
        for symbols in [written[number % len(written)]]
        for place, symbol in enumerate(symbols)
    ]
