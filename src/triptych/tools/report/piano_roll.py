"""Piano roll of a piece as coordinates of an SVG drawing, with what a player needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from triptych.domains.played_pieces import Piece, PlayedNote, PlayedPart, pitch_name

# All sizes are in units of the drawing.
LEFT, TOP, BOTTOM = 34, 4, 22
"""Margins for the labels."""
ROW = 7
"""Height of the row of a pitch."""
UNITS_PER_SECOND = 40.0
MIN_WIDTH, MAX_WIDTH = 560.0, 12_000.0
"""Limits of the panel's width; a piece beyond them has other units per second."""
BLACK_KEYS = (1, 3, 6, 8, 10)
"""Pitch classes, 0 for C."""
MIN_NOTE = 1.2
"""Smallest width of a drawn note."""


@dataclass(frozen=True)
class Bar:
    """Rectangle of one note."""

    x: float
    y: float
    width: float
    opacity: float
    """Lower for softer notes."""
    sound: str
    """Start and duration in seconds, pitch, velocity, and 1 for a drum, with spaces between."""


@dataclass(frozen=True)
class Voice:
    """Notes of one part; number chooses the colour."""

    name: str
    number: int
    bars: list[Bar]


@dataclass(frozen=True)
class PianoRoll:
    """Drawing of a piece."""

    width: float
    height: float
    scale: float
    """Units per second."""
    voices: list[Voice]
    dark_rows: list[float]
    """Upper edges of the rows of black keys."""
    pitch_labels: list[tuple[float, str]]
    time_labels: list[tuple[float, str]]


def piano_roll(piece: Piece) -> PianoRoll:
    """Return the drawing of a piece; drums lie in a row of their own below the pitches."""
    pitches = [note.pitch for part in piece.parts if not part.is_drum for note in part.notes]
    low, high = (min(pitches) - 2, max(pitches) + 2) if pitches else (58, 62)
    panel = min(max(MIN_WIDTH, piece.seconds * UNITS_PER_SECOND), MAX_WIDTH)
    scale = panel / piece.seconds
    drums = any(part.is_drum for part in piece.parts)

    def y(pitch: int) -> float:
        return float(TOP + (high - pitch) * ROW)

    floor = y(low) + ROW

    def bar(note: PlayedNote, part: PlayedPart) -> Bar:
        sound = (
            f"{note.start:.3f} {note.duration:.3f} {note.pitch} {note.velocity} {int(part.is_drum)}"
        )
        width = 3.0 if part.is_drum else max(note.duration * scale, MIN_NOTE)
        return Bar(
            round(LEFT + note.start * scale, 2),
            floor + 2 if part.is_drum else y(note.pitch),
            round(width, 2),
            round(0.5 + 0.5 * min(note.velocity / 100, 1), 2),
            sound,
        )

    voices = [
        Voice(part.name, number, [bar(note, part) for note in part.notes])
        for number, part in enumerate(piece.parts)
    ]
    labelled = (0,) if high - low > 30 else (0, 4, 7)
    every = _round_up(panel / 10 / scale if panel < 1500 else 60 / scale)
    count = math.floor(piece.seconds / every) + 1
    return PianoRoll(
        round(LEFT + panel + 8, 2),
        floor + (ROW + 4 if drums else 0) + BOTTOM,
        round(scale, 4),
        voices,
        [y(pitch) for pitch in range(low, high + 1) if pitch % 12 in BLACK_KEYS],
        [
            (y(pitch) + ROW, pitch_name(pitch))
            for pitch in range(low, high + 1)
            if pitch % 12 in labelled
        ],
        [(round(LEFT + i * every * scale, 2), f"{i * every:g}") for i in range(count)],
    )


def _round_up(seconds: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, 50, ... seconds, at least 0.5."""
    for value in (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600):
        if value >= seconds:
            return value
    return 1200
