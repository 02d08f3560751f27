"""Sound of a piece: by fluidsynth, or sine waves and noise where it is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pretty_midi

SAMPLE_RATE = 44_100
"""Samples of sound per second."""
FLUIDSYNTH = "fluidsynth (TimGM6mb soundfont)"
SINES = "sine waves and noise (fluidsynth is not installed)"
KICKS, HATS, CYMBALS = (35, 36), (42, 44, 54, 69, 70, 82), (46, 49, 51, 52, 53, 55, 57, 59)
"""Pitches of General MIDI; metal sounds are short or long."""
TOMS = {41: 80.0, 43: 95.0, 45: 110.0, 47: 130.0, 48: 150.0, 50: 180.0}
"""Pitch -> frequency in hertz."""


def synthesise(midi: pretty_midi.PrettyMIDI) -> tuple[NDArray[np.float64], str]:
    """Return the samples of a piece at any loudness, and the name of the synthesiser."""
    try:
        import fluidsynth  # noqa: F401
    # Without the system library, pyfluidsynth raises ImportError, older versions OSError or
    # AttributeError.
    except (ImportError, OSError, AttributeError):
        sounds = [_drums(p) if p.is_drum else p.synthesize(SAMPLE_RATE) for p in midi.instruments]
        samples = np.zeros(max(map(len, sounds), default=0))
        for sound in sounds:
            samples[: len(sound)] += sound
        return samples, SINES
    return midi.fluidsynth(fs=SAMPLE_RATE), FLUIDSYNTH


def _drums(part: pretty_midi.Instrument) -> NDArray[np.float64]:
    """Return the sound of a part of drums, as loud as pretty_midi's sine waves."""
    samples = np.zeros(int((part.get_end_time() + 1) * SAMPLE_RATE) + 1)
    hits = {pitch: _hit(pitch) for pitch in {note.pitch for note in part.notes}}
    for note in part.notes:
        own = samples[int(note.start * SAMPLE_RATE) :]
        hit = hits[note.pitch][: len(own)]
        own[: len(hit)] += note.velocity * hit
    return samples


def _hit(pitch: int) -> NDArray[np.float64]:
    """Return a drum at most as loud as 1: a falling tone for skins, bright noise for metal."""
    seconds = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    noise = np.random.default_rng(pitch).uniform(-1, 1, SAMPLE_RATE)
    if pitch in (*HATS, *CYMBALS):
        bright = np.diff(noise, prepend=0) / 2
        return bright * np.exp(-seconds / (0.03 if pitch in HATS else 0.2))
    hertz = 50.0 if pitch in KICKS else TOMS.get(pitch, 190.0)
    tone = np.sin(2 * np.pi * (hertz * seconds - hertz / 20 * np.exp(-20 * seconds)))
    share = 0.0 if pitch in (*KICKS, *TOMS) else 0.7  # of noise; snares and all others
    return ((1 - share) * tone + share * noise) * np.exp(-seconds / (0.06 if share else 0.12))
