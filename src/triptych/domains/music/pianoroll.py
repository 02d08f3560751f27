"""A picture of a piece: time from left to right, pitch upwards."""

from __future__ import annotations

import io
from pathlib import Path

import pretty_midi
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from triptych.training.files import write_whole

COLOURS = ("#c8443c", "#d99a2b", "#3c8a5f", "#33589c", "#7d4f9e", "#5f6b73")
"""One for each instrument, in order; soprano, alto, tenor, bass for chorales."""

SECONDS_PER_INCH = 2.5
DOTS_PER_INCH = 110


def write_piano_roll(midi: pretty_midi.PrettyMIDI, path: str | Path, *, title: str = "") -> Path:
    """Draw a PNG, whole or not at all: one colour per instrument, paler for softer notes."""
    parts = [part for part in midi.instruments if part.notes and not part.is_drum]
    notes = [note for part in parts for note in part.notes]
    end = max((note.end for note in notes), default=1.0)
    low = min((note.pitch for note in notes), default=60) - 2
    high = max((note.pitch for note in notes), default=72) + 2

    width = min(max(8.0, end / SECONDS_PER_INCH), 40.0)  # a long piece is drawn tighter
    figure = Figure(figsize=(width, min(max(3.0, (high - low) / 9), 9.0)), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)  # no window system is asked for
    axes = figure.add_subplot()
    for octave in range(low // 12 * 12, high + 12, 12):
        for black in (1, 3, 6, 8, 10):
            axes.axhspan(octave + black - 0.5, octave + black + 0.5, color="#f1f0ec", linewidth=0)
    for number, part in enumerate(parts):
        axes.add_collection(_boxes(part, COLOURS[number % len(COLOURS)]))
    axes.set_xlim(0, end)
    axes.set_ylim(low, high)
    cs = [pitch for pitch in range(low, high + 1) if pitch % 12 == 0]
    ticks = cs if len(cs) > 2 else [p for p in range(low, high + 1) if p % 12 in (0, 4, 7)]
    axes.set_yticks(ticks, [pretty_midi.note_number_to_name(pitch) for pitch in ticks])
    shaded = len({note.velocity for note in notes}) > 1
    axes.set_xlabel("seconds (darker notes are louder)" if shaded else "seconds")
    axes.set_ylabel("pitch")
    if not notes:
        axes.text(0.5, 0.5, "no notes", transform=axes.transAxes, ha="center", va="center")
    if len(parts) > 1:
        names = [part.name or f"instrument {number + 1}" for number, part in enumerate(parts)]
        handles = [
            Patch(color=COLOURS[number % len(COLOURS)], label=name)
            for number, name in enumerate(names)
        ]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    if title:
        axes.set_title(title, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return write_whole(path, buffer.getvalue())


def _boxes(part: pretty_midi.Instrument, colour: str) -> PatchCollection:
    """Draw the notes of one instrument; the velocity mixes its colour with white."""
    boxes, colours = [], []
    for note in part.notes:
        boxes.append(Rectangle((note.start, note.pitch - 0.45), note.end - note.start, 0.9))
        strength = 0.25 + 0.75 * min(1.0, note.velocity / 100)
        colours.append([1 - strength * (1 - channel) for channel in to_rgb(colour)])
    # A white edge keeps repeated notes apart; thin, or short notes would vanish under it.
    return PatchCollection(boxes, facecolor=colours, edgecolor="white", linewidth=0.3)
