"""Pieces as sound and drawings: .wav files, piano rolls, and arcs of attention over a roll."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from triptych.domains.music.attention_maps import MusicAttention
from triptych.domains.music.midi import write_midi
from triptych.domains.music.notes import Notes, on_grid
from triptych.domains.music.statistics import self_similarity
from triptych.domains.music.tokenizers.base import IsKept, MusicTokenizer
from triptych.files.atomic import write_atomically
from triptych.files.drawing import GREY, new_figure, png
from triptych.files.piano_roll import label_pitches, piano_roll_png

if TYPE_CHECKING:  # loaded only where a piece is played or drawn
    import pretty_midi

SAMPLE_RATE = 44_100
"""Samples per second."""
FLUIDSYNTH = "fluidsynth (TimGM6mb soundfont)"
SINES = "pretty_midi's own synthesis (sine waves; fluidsynth is not installed)"

ARC, NOTE, QUERY = "#33589c", "#c9ccd1", "#c8443c"
MAX_ARCS = 60
MIN_ARC = 0.02
"""Smallest weight of an arc, as a share of the largest one."""
MAX_COLUMNS = 160
"""Largest number of columns in the drawing of the heads; longer pieces are divided evenly."""


def write_wav(midi: pretty_midi.PrettyMIDI, path: str | Path) -> str:
    """Write a piece as a mono 16-bit .wav, atomically; return the name of the synthesiser."""
    try:
        import fluidsynth  # noqa: F401
    # Without the system library, pyfluidsynth raises ImportError, older versions OSError or
    # AttributeError.
    except (ImportError, OSError, AttributeError):
        samples, synthesiser = midi.synthesize(fs=SAMPLE_RATE, normalize=False), SINES
    else:
        samples, synthesiser = midi.fluidsynth(fs=SAMPLE_RATE), FLUIDSYNTH
    peak = float(np.abs(samples).max(initial=0.0))
    # At 90 % of the range neither rounding nor playback clips. Silence stays silence.
    scaled = samples * (0.9 / peak) if peak > 0 else samples
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(np.round(scaled * 32767).astype("<i2").tobytes())
    write_atomically(path, buffer.getvalue())
    return synthesiser


def write_piece(midi: pretty_midi.PrettyMIDI, path: Path, is_kept: IsKept | None = None) -> str:
    """Write a piece as .mid, .wav and .png next to each other; return the synthesiser's name.

    is_kept: as in `piano_roll_png`.
    """
    write_midi(midi, path.with_suffix(".mid"))
    write_atomically(path.with_suffix(".png"), piano_roll_png(midi.instruments, is_kept))
    return write_wav(midi, path.with_suffix(".wav"))


def attention_png(found: MusicAttention, midi: pretty_midi.PrettyMIDI) -> bytes:
    """Draw attention weights: arcs over the piano roll above, one row per head over time below.

    An arc is darker and wider for a larger weight. The red note is the predicted one.
    """
    from matplotlib.patches import FancyArrowPatch

    figure = new_figure(10, 6)
    roll, rows = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.3))
    start, here = found.seconds[0], found.seconds[-1]
    end = here + max(0.06 * (here - start), 0.3)  # room for arcs to notes of the same instant

    sounding = found.pitches[found.pitches >= 0]
    low, high = sounding.min() - 3, sounding.max() + 3
    thickness = min(5.0, 220 / (high - low))  # points: notes a semitone apart do not touch
    for part in midi.instruments:
        for note in () if part.is_drum else part.notes:
            if note.end > start and note.start < end:
                span = note.start, min(note.end, end)
                roll.hlines(note.pitch, *span, color=NOTE, linewidth=thickness)
    target = (here, found.pitches[-1])
    weights = found.weights
    largest = max(float(weights.max(initial=0.0)), 1e-9)
    for token in np.argsort(weights)[::-1][:MAX_ARCS]:
        share = weights[token] / largest
        if found.pitches[token] < 0 or share < MIN_ARC:
            continue
        source = (found.seconds[token], found.pitches[token])
        alpha = 0.1 + 0.9 * share
        arc = FancyArrowPatch(
            target, source, arrowstyle="-", connectionstyle="arc3,rad=0.2", color=ARC,
            alpha=alpha, linewidth=0.4 + 2.6 * share, shrinkA=0, shrinkB=0, zorder=3,
        )  # fmt: skip
        roll.add_patch(arc)
        roll.plot(*source, "o", color=ARC, alpha=alpha, markersize=2 + 3 * share, zorder=3)
    roll.plot(*target, "o", color=QUERY, markersize=7, zorder=4)
    label_pitches(roll, low, high)
    head = "mean of all heads" if found.head is None else f"head {found.head}"
    title = f"layer {found.layer}, {head}: attention weights for the red note"
    roll.set_title(title, fontsize=9, color=GREY, loc="left")

    edges = np.append(np.unique(found.seconds), end)  # a column from each time to the next
    if len(edges) > MAX_COLUMNS + 1:
        edges = np.linspace(start, end, MAX_COLUMNS + 1)
    shares = [np.histogram(found.seconds[:-1], edges, weights=head)[0] for head in found.heads]
    mesh = rows.pcolormesh(edges, np.arange(len(shares) + 1) + 0.5, shares, cmap="Blues", vmin=0)
    rows.set_yticks(np.arange(1, len(shares) + 1))
    rows.invert_yaxis()
    rows.set_ylabel("head")
    rows.set_xlabel("seconds")
    rows.set_xlim(start, end)
    figure.colorbar(mesh, ax=rows, label="attention weight", pad=0.01)
    return png(figure)


def self_similarity_png(midi: pretty_midi.PrettyMIDI, tokenizer: MusicTokenizer) -> bytes:
    """Draw how similar all pairs of beats, or of seconds without a meter, of a piece are.

    On the left by pitch classes (harmony), on the right by pitches. A passage that is repeated
    later is a line parallel to the diagonal.
    """
    notes = on_grid(Notes.of_midi(midi), tokenizer.steps_per_second)
    segment = tokenizer.steps_per_beat or round(tokenizer.steps_per_second)
    per_tick = (tokenizer.steps_per_bar or segment) // segment  # segments in a bar or second
    unit = "bar" if tokenizer.steps_per_bar else "second"
    figure = new_figure(10, 5)
    panels = figure.subplots(1, 2, sharey=True)
    titles = ("pitch classes", "pitches")
    matrices = self_similarity(notes, segment) if len(notes) else [np.zeros((1, 1))] * 2
    for axes, matrix, title in zip(panels, matrices, titles, strict=True):
        edges = np.arange(len(matrix) + 1) / per_tick
        mesh = axes.pcolormesh(edges, edges, matrix, cmap="Blues", vmin=0, vmax=1)
        axes.set_aspect("equal")
        axes.set_title(title, fontsize=9, color=GREY, loc="left")
        axes.set_xlabel(f"{unit}s")
    panels[0].set_ylabel(f"{unit}s")
    if not len(notes):
        panels[0].text(0.5, 0.5, "no notes", transform=panels[0].transAxes, ha="center")
    figure.colorbar(mesh, ax=panels, label="similarity (cosine)", pad=0.01)
    return png(figure)
