"""Chord symbols: what files and users write, in MusicXML, and as one of a few kinds on a root.

Symbols are such as C:maj, F#m7b5, Bb/D and G:7(b9)/B; names of the kinds by Harte et al. 2005
(ISMIR). Also notes on the circle of fifths.
"""

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element

SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
ROOTS = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
QUALITIES = (
    "maj", "min", "dim", "aug", "sus2", "sus4", "7", "maj7", "min7", "hdim7", "dim7", "minmaj7"
)  # fmt: skip
CHORDS = ("N", *(f"{root}:{quality}" for quality in QUALITIES for root in ROOTS))
"""No chord, then every kind on every root."""
SMALLER = {
    "maj6": "maj", "min6": "min", "aug7": "aug", "9": "7", "maj9": "maj7", "min9": "min7",
    "11": "7", "maj11": "maj7", "min11": "min7", "13": "7", "maj13": "maj7", "min13": "min7",
    "5": "maj", "1": "maj",
}  # fmt: skip
"""Other kinds -> the one of their seventh and lower notes."""
OTHER_NAMES = {
    "": "maj", "M": "maj", "m": "min", "-": "min", "mi": "min", "o": "dim", "°": "dim", "+": "aug",
    "sus": "sus4", "4": "sus4", "2": "sus2", "7sus4": "sus4", "6": "maj6", "69": "maj6",
    "m6": "min6", "dom7": "7", "M7": "maj7", "Maj7": "maj7", "Δ": "maj7", "m7": "min7",
    "mi7": "min7", "-7": "min7", "m9": "min9", "m11": "min11", "m7b5": "hdim7", "ø": "hdim7",
    "ø7": "hdim7", "hdim": "hdim7", "o7": "dim7", "°7": "dim7", "mM7": "minmaj7",
    "mmaj7": "minmaj7", "minor-major": "minmaj7",
}  # fmt: skip
MUSICXML_KINDS = {
    "major": "maj", "minor": "min", "augmented": "aug", "diminished": "dim", "dominant": "7",
    "major-seventh": "maj7", "minor-seventh": "min7", "diminished-seventh": "dim7",
    "augmented-seventh": "aug7", "half-diminished": "hdim7", "major-minor": "minmaj7",
    "major-sixth": "maj6", "minor-sixth": "min6", "dominant-ninth": "9", "major-ninth": "maj9",
    "minor-ninth": "min9", "dominant-11th": "11", "major-11th": "maj11", "minor-11th": "min11",
    "dominant-13th": "13", "major-13th": "maj13", "minor-13th": "min13",
    "suspended-second": "sus2", "suspended-fourth": "sus4", "power": "5", "pedal": "1",
}  # fmt: skip
NO_CHORD = ("N", "N.C.", "NC", "X", "")
SYMBOL = re.compile(r"([A-Ga-g][#b]*):?([^(/]*?)(\(.*\))?(?:/(.*))?")
"""Root, kind, degrees and bass."""
DEGREES = re.compile(r"([#b]\d+|(add|omit|no)\d+|sus\d?|alt)*$")
"""Degrees without brackets, at the end of a kind."""
STEPS = "FCGDAEB"
"""Steps of the scale on the circle of fifths, which goes on with sharps and before with flats."""


def parse_chord(text: str) -> tuple[str, str, str, str] | None:
    """Return root, kind, degrees and bass of a chord; None for no chord and for other text.

    The kind is one of QUALITIES or SMALLER; degrees are added, or left out with an asterisk.
    """
    parts = SYMBOL.fullmatch(text.strip().replace("♯", "#").replace("♭", "b"))
    if parts is None:
        return None
    root, name, degrees, bass = (part or "" for part in parts.groups())
    for shorter in (name, DEGREES.sub("", name)):
        kind = OTHER_NAMES.get(shorter, shorter)
        if kind in QUALITIES or kind in SMALLER:
            return root.capitalize(), kind, name[len(shorter) :] + degrees.strip("()"), bass
    return None


def chord_index(text: str) -> int | None:
    """Return the index in CHORDS of a chord symbol; None for other text.

    Degrees and the bass are not kept.
    """
    if text.strip() in NO_CHORD:
        return 0
    if (chord := parse_chord(text)) is None:
        return None
    root, kind, *_ = chord
    semitones = SEMITONES[root[0]] + root.count("#") - root.count("b")
    return 1 + QUALITIES.index(SMALLER.get(kind, kind)) * 12 + semitones % 12


def transposed(index: int, semitones: int) -> int:
    """Return the index of a chord on another root."""
    if index == 0:
        return 0
    kind, root = divmod(index - 1, 12)
    return 1 + kind * 12 + (root + semitones) % 12


def chords_of(texts: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the chord symbols among (tick, text) of one kind; none where most are no chords.

    Letters alone are chords unless they are A, B and so on, which name sections.
    """
    texts = [(tick, text.strip()) for tick, text in texts]
    chords = [
        row for row in texts if row[1][:1] in (*STEPS, "N") and chord_index(row[1]) is not None
    ]
    symbols = {text for _, text in chords if text not in NO_CHORD}
    are_sections = symbols == set("ABCDEFG"[: len(symbols)])
    return [] if 2 * len(chords) <= len(texts) or len(symbols) < 2 or are_sections else chords


def on_fifths(place: int) -> tuple[str, int]:
    """Return the step and the alteration of a note on the circle of fifths, 0 for C, 1 for G."""
    return STEPS[(place + 1) % 7], (place + 1) // 7


def chord_symbol(harmony: Element, semitones: int) -> str:
    """Return the symbol of a harmony element of MusicXML; ValueError for one without a root.

    semitones: from the written to the sounding pitch.
    """

    def note(place: str) -> str:
        step = harmony.findtext(f"{place}/{place}-step", "").strip()
        if step not in STEPS:
            raise ValueError(f"{place} {step}")
        alter = round(float(harmony.findtext(f"{place}/{place}-alter") or 0))
        if semitones % 12:
            fifths = STEPS.index(step) - 1 + 7 * alter + 7 * semitones
            step, alter = on_fifths((fifths + 5) % 12 - 5)  # from D flat to F sharp
        return step + ("#" * alter if alter > 0 else "b" * -alter)

    kind = harmony.findtext("kind", "").strip()
    if kind == "none":
        return NO_CHORD[0]
    degrees = []
    for degree in harmony.findall("degree"):
        alter = round(float(degree.findtext("degree-alter") or 0))
        is_left_out = degree.findtext("degree-type", "").strip() == "subtract"
        sign = "*" if is_left_out else "#" * alter if alter > 0 else "b" * -alter
        degrees.append(f"{sign}{int(degree.findtext('degree-value', ''))}")
    symbol = MUSICXML_KINDS.get(kind) or OTHER_NAMES.get(kind)
    if symbol is None:
        raise ValueError(f"kind {kind}")
    added = f"({','.join(degrees)})" * bool(degrees)
    bass = f"/{note('bass')}" if harmony.find("bass") is not None else ""
    return f"{note('root')}:{symbol}{added}{bass}"
