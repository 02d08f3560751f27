"""A piano roll with arcs to the notes that one note was predicted from, and what each head read."""

from __future__ import annotations

import io

import numpy as np
import pretty_midi
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from triptych.domains.music.attention import Attended

ARC, NOTE, QUERY = "#33589c", "#c9ccd1", "#c8443c"
MOST_ARCS = 60
MOST_COLUMNS = 160
"""Most columns of the lower picture; longer pieces are cut into so many equal parts."""
DOTS_PER_INCH = 110


def draw(attended: Attended, midi: pretty_midi.PrettyMIDI) -> bytes:
    """Draw a PNG: above the roll of the piece with arcs, below a row for each head over time.

    An arc is the stronger the more is read; the red note is the one that is predicted.
    """
    figure = Figure(figsize=(10, 6), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # no window system is asked for
    roll, rows = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.3))
    start, here = attended.seconds[0], attended.seconds[-1]
    end = here + max(0.06 * (here - start), 0.3)  # room for arcs to notes of the same instant

    sounding = attended.pitch[attended.pitch >= 0]
    low, high = sounding.min() - 3, sounding.max() + 3
    thick = min(5.0, 220 / (high - low))  # points: notes a semitone apart do not touch
    for part in midi.instruments:
        for note in part.notes:
            if note.end > start and note.start < end:
                roll.hlines(note.pitch, note.start, min(note.end, end), color=NOTE, linewidth=thick)
    target = (here, attended.pitch[-1])
    strongest = np.argsort(attended.reads)[::-1][:MOST_ARCS]
    highest = max(float(attended.reads.max(initial=0.0)), 1e-9)
    for token in strongest:
        share = attended.reads[token] / highest
        if attended.pitch[token] < 0 or share < 0.02:
            continue
        place = (attended.seconds[token], attended.pitch[token])
        arc = FancyArrowPatch(
            target, place, arrowstyle="-", connectionstyle="arc3,rad=0.2", color=ARC,
            alpha=0.1 + 0.9 * share, linewidth=0.4 + 2.6 * share, shrinkA=0, shrinkB=0, zorder=3,
        )  # fmt: skip
        roll.add_patch(arc)
        roll.plot(*place, "o", color=ARC, alpha=0.1 + 0.9 * share, ms=2 + 3 * share, zorder=3)
    roll.plot(*target, "o", color=QUERY, markersize=7, zorder=4)
    roll.set_ylim(low, high)
    ticks = [
        pitch for pitch in range(low, high) if pitch % 12 in ((0, 7) if high - low < 40 else (0,))
    ]
    roll.set_yticks(ticks, [pretty_midi.note_number_to_name(pitch) for pitch in ticks])
    heads = "mean of all heads" if attended.head is None else f"head {attended.head}"
    roll.set_title(
        f"layer {attended.layer}, {heads}: what is read to predict the red note",
        fontsize=9, color="#5f6b73", loc="left",
    )  # fmt: skip

    edges = np.append(np.unique(attended.seconds), end)  # a column from each time to the next
    if len(edges) > MOST_COLUMNS + 1:
        edges = np.linspace(start, end, MOST_COLUMNS + 1)
    shares = [
        np.histogram(attended.seconds[:-1], edges, weights=head)[0] for head in attended.heads
    ]
    numbers = np.arange(len(shares) + 1) + 0.5
    mesh = rows.pcolormesh(edges, numbers, shares, cmap="Blues", vmin=0)
    rows.set_yticks(np.arange(1, len(shares) + 1))
    rows.invert_yaxis()
    rows.set_ylabel("head")
    rows.set_xlabel("seconds")
    rows.set_xlim(start, end)
    figure.colorbar(mesh, ax=rows, label="share of the reading", pad=0.01)
    for side in ("top", "right"):
        roll.spines[side].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
