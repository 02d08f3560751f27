"""Chord symbols: what files and users write, as one of a few kinds on a root."""

from __future__ import annotations

import re

from triptych.domains.music.constraints import ACCIDENTALS, SEMITONES

ROOTS = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
QUALITIES = {
    "maj": (0, 4, 7), "min": (0, 3, 7), "dim": (0, 3, 6), "aug": (0, 4, 8), "sus2": (0, 2, 7),
    "sus4": (0, 5, 7), "7": (0, 4, 7, 10), "maj7": (0, 4, 7, 11), "min7": (0, 3, 7, 10),
    "hdim7": (0, 3, 6, 10), "dim7": (0, 3, 6, 9), "minmaj7": (0, 3, 7, 11),
}  # fmt: skip
"""Semitones of each kind of chord above its root; names of Harte et al. 2005 (ISMIR)."""
CHORDS = ("N", *(f"{root}:{quality}" for quality in QUALITIES for root in ROOTS))
"""No chord, then every kind on every root."""
NO_CHORD = ("N", "N.C.", "NC", "X", "")
OTHER_NAMES = {
    "": "maj", "M": "maj", "5": "maj", "1": "maj", "6": "maj", "maj6": "maj", "add9": "maj",
    "69": "maj", "6/9": "maj", "m": "min", "-": "min", "mi": "min", "m6": "min", "min6": "min",
    "o": "dim", "°": "dim", "+": "aug", "sus": "sus4", "dom7": "7", "9": "7", "11": "7", "13": "7",
    "7sus4": "sus4", "M7": "maj7", "Maj7": "maj7", "Δ": "maj7", "maj9": "maj7", "maj11": "maj7",
    "maj13": "maj7", "m7": "min7", "mi7": "min7", "-7": "min7", "min9": "min7", "m9": "min7",
    "min11": "min7", "min13": "min7", "m11": "min7", "m7b5": "hdim7", "ø": "hdim7", "ø7": "hdim7",
    "hdim": "hdim7", "o7": "dim7", "°7": "dim7", "mM7": "minmaj7", "mmaj7": "minmaj7",
}  # fmt: skip
"""Other spellings, and chords of which only seventh and lower notes are kept."""


def chord_index(symbol: str) -> int | None:
    """Return the index in CHORDS of a symbol such as C:maj, F#m7 or Bb/D; None for other text.

    The bass after a slash and what stands in brackets are not kept.
    """
    symbol = re.sub(r"\(.*?\)", "", symbol.strip())
    if symbol in NO_CHORD:
        return 0
    parts = re.fullmatch(r"([A-Ga-g])(#|b|♯|♭)?:?(.*?)(/.*)?", symbol)
    if parts is None:
        return None
    quality = OTHER_NAMES.get(parts[3], parts[3])
    if quality not in QUALITIES:
        return None
    accidental = {"♯": "#", "♭": "b", None: ""}.get(parts[2], parts[2])
    root = (SEMITONES[parts[1].upper()] + ACCIDENTALS[accidental]) % 12
    return 1 + list(QUALITIES).index(quality) * 12 + root


def transposed(index: int, semitones: int) -> int:
    """Return the index of a chord on another root."""
    if index == 0:
        return 0
    kind, root = divmod(index - 1, 12)
    return 1 + kind * 12 + (root + semitones) % 12
