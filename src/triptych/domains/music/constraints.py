"""Options of the constraints on sampled music, what their texts mean, and pitches of notes."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from triptych.types import Checked

SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
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
ALL_VOICES = ""
"""Name under which `parse_ranges` returns a range without the name of a voice."""


@dataclass(frozen=True, kw_only=True)
class ConstraintOptions(Checked):
    """Constraints on sampled music. They hold for new notes; a primer is never changed."""

    scale: str | None = None
    """Scale of the notes, such as C:major, F#:natural_minor, Bb:harmonic_minor, A:minor (natural
    and harmonic together) or C:chromatic; null for all notes."""
    ranges: str | None = None
    """Lowest and highest MIDI pitch, such as 48-84; of chorales also by voice, such as
    soprano=60-79,bass=40-62, or textbook for the usual ranges; null for all pitches."""
    no_parallels: bool = False
    """Chorales: forbid parallel fifths and octaves between any two voices."""
    instruments: str | None = None
    """Instruments that play, such as violin,violin,viola,cello or 40,41,42 or drums: names or
    numbers of General MIDI separated by commas, all of them instruments of the model; null for all
    of the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None:
            parse_scale(self.scale)
        if self.ranges not in (None, TEXTBOOK):
            parse_ranges(self.ranges)

    def constraints(self) -> list[str]:
        """Return the names of the constraints that are asked for."""
        names = [field.name for field in fields(ConstraintOptions)]
        return [name for name in names if getattr(self, name) not in (None, False)]


def parse_scale(text: str) -> frozenset[int]:
    """Return the pitch classes of a scale such as `F#:minor`; raises ValueError for other texts."""
    tonic, _, scale = text.strip().partition(":")
    letter, accidental = tonic[:1].upper(), tonic[1:]
    if letter not in SEMITONES or accidental not in ACCIDENTALS or scale not in SCALES:
        raise ValueError(
            f"scale is {text!r}; expected a note from A to G, perhaps with # or b, a colon, and "
            f"one of {', '.join(SCALES)}, such as F#:minor"
        )
    root = SEMITONES[letter] + ACCIDENTALS[accidental]
    return frozenset((root + step) % 12 for step in SCALES[scale])


def parse_ranges(text: str) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest pitch by the name of a voice, in small letters.

    A range without a name, as `48-84`, has the key ALL_VOICES. Raises ValueError for other texts.
    """
    from triptych.domains.music.notes import N_PITCHES  # numpy, which --help does not need

    voice = r"\s*(?:([A-Za-z]+)\s*=)?\s*(\d+)\s*-\s*(\d+)\s*"
    matches = [re.fullmatch(voice, part) for part in text.split(",")]
    ranges = {(m[1] or ALL_VOICES).lower(): (int(m[2]), int(m[3])) for m in matches if m}
    wrong = len(ranges) < len(matches) or (ALL_VOICES in ranges and len(ranges) > 1)
    if wrong or not all(low <= high < N_PITCHES for low, high in ranges.values()):
        raise ValueError(
            f"ranges is {text!r}; expected a lowest and a highest MIDI pitch of at most "
            f"{N_PITCHES - 1} such as 48-84, one such range for each voice as "
            f"soprano=60-79,bass=40-62, or {TEXTBOOK}"
        )
    return ranges
