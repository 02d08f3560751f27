"""Piano roll of a piece as a page without scripts, for loggers that show HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from triptych.domains.music.render import COLOURS

if TYPE_CHECKING:
    import pretty_midi

SECOND, SEMITONE = 60.0, 6
"""Width of a second and height of a semitone in pixels."""


def piano_roll_page(midi: pretty_midi.PrettyMIDI) -> str:
    """Return a page with one bar per note; its tooltip has part, pitch and times in seconds.

    One colour per part; drums are left out.
    """
    parts = [part for part in midi.instruments if part.notes and not part.is_drum]
    notes = [note for part in parts for note in part.notes]
    high = max((note.pitch for note in notes), default=72) + 2
    low = min((note.pitch for note in notes), default=60) - 2
    width = max((note.end for note in notes), default=1.0) * SECOND
    bars = "".join(
        f'<rect x="{note.start * SECOND:.1f}" y="{(high - note.pitch) * SEMITONE}" '
        f'width="{(note.end - note.start) * SECOND:.1f}" height="{SEMITONE}" '
        f'fill="{COLOURS[number % len(COLOURS)]}" stroke="white" stroke-width="0.5">'
        f"<title>{escape(part.name or f'part {number + 1}')}: pitch {note.pitch}, "
        f"{note.start:.2f} to {note.end:.2f} s</title></rect>"
        for number, part in enumerate(parts)
        for note in part.notes
    )
    size = f'width="{width:.0f}" height="{(high - low + 1) * SEMITONE}"'
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Piano roll</title>'
        f'<body style="overflow-x:auto"><svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label="Piano roll">{bars}</svg></body></html>\n'
    )
