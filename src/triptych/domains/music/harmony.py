"""Chord symbols such as C:maj and G:7(b9)/B as MusicXML writes them, and notes on the circle of
fifths."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement

STEPS = "FCGDAEB"
"""Steps of the scale on the circle of fifths, which goes on with sharps and before with flats."""
KINDS = {
    "major": "maj", "minor": "min", "augmented": "aug", "diminished": "dim", "dominant": "7",
    "major-seventh": "maj7", "minor-seventh": "min7", "diminished-seventh": "dim7",
    "augmented-seventh": "aug7", "half-diminished": "hdim7", "major-minor": "minmaj7",
    "major-sixth": "maj6", "minor-sixth": "min6", "dominant-ninth": "9", "major-ninth": "maj9",
    "minor-ninth": "min9", "dominant-11th": "11", "major-11th": "maj11", "minor-11th": "min11",
    "dominant-13th": "13", "major-13th": "maj13", "minor-13th": "min13",
    "suspended-second": "sus2", "suspended-fourth": "sus4", "power": "5", "pedal": "1",
}  # fmt: skip
"""Kind of a chord in MusicXML -> in a symbol."""
OTHER_KINDS = {
    "": "maj", "M": "maj", "m": "min", "-": "min", "mi": "min", "o": "dim", "+": "aug",
    "m7": "min7", "-7": "min7", "M7": "maj7", "o7": "dim7", "m7b5": "hdim7", "m6": "min6",
    "6": "maj6", "m9": "min9", "sus": "sus4", "7sus4": "sus4", "minor-major": "minmaj7",
}  # fmt: skip
"""Other ways to write a kind -> that of KINDS."""
SYMBOL = re.compile(
    r"(?P<root>[A-G][#b]*):?(?P<kind>[\w+-]*)(\((?P<degrees>[*#b\d,]+)\))?(/(?P<bass>[A-G][#b]*))?"
)
"""A chord; degrees are added, or left out with an asterisk."""
NO_CHORD = "N"


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
        return NO_CHORD
    degrees = []
    for degree in harmony.findall("degree"):
        alter = round(float(degree.findtext("degree-alter") or 0))
        is_left_out = degree.findtext("degree-type", "").strip() == "subtract"
        sign = "*" if is_left_out else "#" * alter if alter > 0 else "b" * -alter
        degrees.append(f"{sign}{int(degree.findtext('degree-value', ''))}")
    if (symbol := KINDS.get(kind) or OTHER_KINDS.get(kind)) is None:
        raise ValueError(f"kind {kind}")
    added = f"({','.join(degrees)})" * bool(degrees)
    bass = f"/{note('bass')}" if harmony.find("bass") is not None else ""
    return f"{note('root')}:{symbol}{added}{bass}"


def harmony_element(symbol: str) -> Element | None:
    """Return a symbol as an element of MusicXML; None where it is no chord."""
    match = SYMBOL.fullmatch(symbol)
    kinds = {name: kind for kind, name in KINDS.items()}
    written = "" if match is None else OTHER_KINDS.get(match["kind"], match["kind"])
    kind = "none" if symbol == NO_CHORD else kinds.get(written)
    if kind is None:
        return None
    harmony = Element("harmony", placement="above")

    def add(place: str, name: str) -> None:
        note = SubElement(harmony, place)
        SubElement(note, f"{place}-step").text = name[0]
        if name[1:]:  # programs show a natural sign for 0
            SubElement(note, f"{place}-alter").text = str(name.count("#") - name.count("b"))

    add("root", match["root"] if match else "C")  # which even no chord has to have
    SubElement(harmony, "kind").text = kind
    if match and match["bass"]:
        add("bass", match["bass"])
    for text in ((match and match["degrees"]) or "").split(","):
        if text:
            degree = SubElement(harmony, "degree")
            SubElement(degree, "degree-value").text = text.lstrip("*#b")
            SubElement(degree, "degree-alter").text = str(text.count("#") - text.count("b"))
            SubElement(degree, "degree-type").text = "subtract" if text[0] == "*" else "add"
    return harmony
