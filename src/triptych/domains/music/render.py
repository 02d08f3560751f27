"""Pieces as files: sound, piano rolls and drawings of self-similarity."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from triptych.domains.music.midi import write_midi
from triptych.domains.music.notes import Notes, on_grid
from triptych.domains.music.statistics import self_similarity
from triptych.domains.music.tokenizers.base import IsKept, MusicTokenizer
from triptych.files.drawing import GREY, new_figure, png
from triptych.files.piano_roll import piano_roll_png
from triptych.files.results import write_atomically

if TYPE_CHECKING:  # loaded only where a piece is played or drawn
    import pretty_midi

SAMPLE_RATE = 44_100
"""Samples per second."""
FLUIDSYNTH = "fluidsynth (TimGM6mb soundfont)"
SINES = "pretty_midi's own synthesis (sine waves; fluidsynth is not installed)"


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
