"""Piano rolls of the report and the playground as SVG, and statistics of a piece."""

import math
from collections.abc import Sequence
from html import escape

from triptych.files.piano_roll import PianoRoll, Piece, pitch_labels, pitch_name, strength

LEFT, TOP, BOTTOM = 34, 4, 22
"""Margins of an SVG drawing for its labels, in its units, pixels."""
ROW = 7
"""Height of the row of a pitch."""
UNITS_PER_SECOND = 40.0
MIN_WIDTH, MAX_WIDTH = 560.0, 12_000.0
"""Limits of the panel's width; a piece beyond them has other units per second."""


def statistics(piece: Piece) -> list[tuple[str, str]]:
    """Return statistics of the notes as (name, value with its unit)."""
    seconds = piece.roll.seconds
    notes = [note for part in piece.parts for note in part.notes]
    pitched = [note.pitch for part in piece.parts if not part.is_drum for note in part.notes]
    sounding = sum(note.end - note.start for note in notes)
    rows = [
        ("notes", f"{len(notes):,}"),
        ("duration", f"{seconds:.1f} s"),
        ("notes per second", f"{len(notes) / seconds:.2f}"),
        ("mean number of sounding notes", f"{sounding / seconds:.2f}"),
    ]
    if pitched:
        rows.append(("pitches", f"{pitch_name(min(pitched))} to {pitch_name(max(pitched))}"))
        rows.append(("different pitches", str(len(set(pitched)))))
    return rows


def piano_roll_svg(
    roll: PianoRoll, description: str = "Piano roll", bars: Sequence[float] = ()
) -> str:
    """Return the SVG element of a roll for a page; each note has a tooltip.

    bars: times of bar lines in seconds, which are numbered from 1. Classes for the page's style:
    `row` of a black key, `grid` of a time or bar, `bar` of its number, `voice` with `colour-0` to
    `colour-5`, and `cursor`, a line at 0 s. For a player, the element has the units of a second as
    `data-scale`, and a note its start, duration, pitch, velocity and 1 for a drum as `data-sound`.
    """
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    panel = min(max(MIN_WIDTH, roll.seconds * UNITS_PER_SECOND), MAX_WIDTH)
    scale, width = panel / roll.seconds, LEFT + panel + 8
    floor = TOP + (roll.high - roll.low + 1) * ROW
    locator = MaxNLocator(math.floor(panel / 60), steps=[1, 2, 5, 10])
    times = np.asarray(locator.tick_values(0, roll.seconds))

    def y(pitch: float) -> float:
        return TOP + (roll.high - pitch) * ROW

    lines = [
        f'<svg width="{width:g}" height="{floor + BOTTOM}" viewBox="0 0 {width:g} {floor + BOTTOM}"'
        f' data-scale="{scale:.4f}" role="img" aria-label="{escape(description)}">'
    ]
    for pitch in roll.dark_rows:
        lines.append(
            f'<rect class="row" x="{LEFT}" y="{y(pitch)}" width="{panel + 8:g}" height="{ROW}"/>'
        )
    for pitch, name in pitch_labels(roll.low, roll.high).items():
        lines.append(f'<text x="{LEFT - 4}" y="{y(pitch) + ROW}" text-anchor="end">{name}</text>')
    for time in times[times <= roll.seconds]:
        x = f"{LEFT + time * scale:.2f}"
        if not bars:
            lines.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{floor}"/>')
        lines.append(f'<text x="{x}" y="{floor + 14}" text-anchor="middle">{time:g}</text>')
    for number, time in enumerate(bars, start=1):
        if time < roll.seconds:
            x = f"{LEFT + time * scale:.2f}"
            lines.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{floor}"/>')
            lines.append(f'<text class="bar" x="{x}" dx="2" y="{TOP + 9}">{number}</text>')
    for name, _, colour, part in roll.voices:
        lines.append(f'<g class="voice colour-{colour}">')
        for note in part.notes:
            length, place = note.end - note.start, roll.drums if part.is_drum else note.pitch
            lines.append(
                f'<rect x="{LEFT + note.start * scale:.2f}" y="{y(place):g}" height="{ROW - 1}" '
                f'width="{3 if part.is_drum else max(length * scale, 1.2):.2f}" rx="1" '
                f'fill-opacity="{strength(note.velocity):.2f}" data-sound="{note.start:.3f} '
                f'{length:.3f} {note.pitch} {note.velocity} {int(part.is_drum)}"><title>'
                f"{escape(name)}: pitch {note.pitch}, {note.start:.2f} to {note.end:.2f} s"
                "</title></rect>"
            )
        lines.append("</g>")
    lines.append(f'<line class="cursor" x1="{LEFT}" x2="{LEFT}" y1="0" y2="{floor + 2}"/></svg>')
    return "\n".join(lines)
