"""Sound: a 16-bit .wav through fluidsynth where it is installed, else sines."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
import pretty_midi
from numpy.typing import NDArray

from triptych.training.files import write_whole

SAMPLE_RATE = 44_100
"""Samples a second."""

FLUIDSYNTH = "fluidsynth (TimGM6mb soundfont)"
SINES = "pretty_midi's own synthesis (sine waves; fluidsynth is not installed)"


def render(midi: pretty_midi.PrettyMIDI) -> tuple[NDArray[np.float64], str]:
    """Play a piece: samples of any loudness, mono, and the name of what played it."""
    played = _fluidsynth(midi)
    if played is not None:
        return played, FLUIDSYNTH
    return np.asarray(midi.synthesize(fs=SAMPLE_RATE, normalize=False), dtype=np.float64), SINES


def write_wav(midi: pretty_midi.PrettyMIDI, path: str | Path) -> str:
    """Write a piece as a mono 16-bit .wav, whole or not at all; say what played it."""
    samples, synthesiser = render(midi)
    peak = float(np.abs(samples).max(initial=0.0))
    # Loudest at 90 %, so that no rounding or playback clips; silence stays silence.
    scaled = samples * (0.9 / peak) if peak > 0 else samples
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(np.round(scaled * 32767).astype("<i2").tobytes())
    write_whole(path, buffer.getvalue())
    return synthesiser


def _fluidsynth(midi: pretty_midi.PrettyMIDI) -> NDArray[np.float64] | None:
    """Play with the soundfont that pretty_midi carries; None where fluidsynth is not to be had."""
    try:
        import fluidsynth  # noqa: F401
    # Without the system library, pyfluidsynth raises ImportError on its import, older ones OSError
    # or AttributeError.
    except (ImportError, OSError, AttributeError):
        return None
    return np.asarray(midi.fluidsynth(fs=SAMPLE_RATE), dtype=np.float64)
