"""Chord symbols in texts, such as Am7, F#m7b5, C:maj7/3 and N.C."""

from __future__ import annotations

import re
from collections.abc import Iterable

QUALITY = (
    r"maj|min|mi|ma|Maj|Min|dim|hdim|aug|sus|add|alt|omit|no|dom|m|M|o|°|ø|Δ|\+|-|–|"
    r"[#b♯♭]?(?:2|4|5|6|7|9|11|13|3|1)|[#b]?\d/\d|[(),]"
)
CHORD = re.compile(rf"[A-G][#b♯♭]?:?(?:{QUALITY})*(?:/(?:[A-G][#b♯♭]?|[#b]?\d\d?))?")
NO_CHORD = re.compile(r"N(?:\.?C\.?)?")
ROOT = re.compile(r"[A-G]")


def chord_symbols(texts: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the chord symbols among (tick, text) of one kind; none where most are no chords.

    Letters alone are chords unless they are A, B and so on, which name sections.
    """
    texts = [(tick, text.strip()) for tick, text in texts]
    chords = [
        (tick, text) for tick, text in texts if CHORD.fullmatch(text) or NO_CHORD.fullmatch(text)
    ]
    symbols = {text for _, text in chords if not NO_CHORD.fullmatch(text)}
    are_sections = symbols == set("ABCDEFG"[: len(symbols)])
    return [] if 2 * len(chords) <= len(texts) or len(symbols) < 2 or are_sections else chords
