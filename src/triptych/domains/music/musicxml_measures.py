"""The measures of a MusicXML score: their notes, meters, keys, tempos and chord symbols."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple
from xml.etree.ElementTree import Element

from triptych.domains.music.chords import chord_symbol
from triptych.domains.music.constraints import SEMITONES
from triptych.domains.music.notation import NOTE_TYPES
from triptych.domains.music.notes import DRUMS

VELOCITY = 80
"""Of notes without one."""
FORTE = 90
"""Velocity of 100 percent."""
MAX_COUNT = 255
"""Largest numerator of a time signature of MIDI files."""
TEMPOS = (4.0, 6000.0)
"""Slowest and fastest tempo that is no damage, in quarters per minute; MIDI has none below."""
DRUM_PLACES = {
    35: ("F", 4, "normal"), 36: ("F", 4, "normal"), 37: ("C", 5, "x"), 38: ("C", 5, "normal"),
    39: ("C", 5, "x"), 40: ("C", 5, "normal"), 41: ("G", 4, "normal"), 42: ("G", 5, "x"),
    43: ("A", 4, "normal"), 44: ("D", 4, "x"), 45: ("B", 4, "normal"), 46: ("G", 5, "circle-x"),
    47: ("D", 5, "normal"), 48: ("D", 5, "normal"), 49: ("A", 5, "x"), 50: ("E", 5, "normal"),
    51: ("F", 5, "x"), 52: ("A", 5, "x"), 53: ("F", 5, "diamond"), 54: ("E", 5, "x"),
    55: ("A", 5, "x"), 56: ("E", 5, "triangle"), 57: ("A", 5, "x"), 59: ("F", 5, "x"),
}  # fmt: skip
"""Pitch of a drum in General MIDI -> step and octave of its place on the staff, and notehead."""
SNARE = 38


class XmlNote(NamedTuple):
    """Note of a part, times in quarters."""

    onset: Fraction
    release: Fraction
    pitch: int
    """MIDI pitch as it sounds."""
    ties: frozenset[str | None]
    """start or stop of a tie; some files write one of them."""
    velocity: int
    program: int


class Instrument(NamedTuple):
    """What plays notes of a part."""

    program: int = 0
    drum: int | None = None
    """MIDI pitch of its unpitched notes."""


class XmlPart:
    """One part of a score, and how its file writes notes at the measure that is read."""

    def __init__(self, name: str, instruments: dict[str | None, Instrument]) -> None:
        self.name, self.instruments = name, instruments
        self.notes: list[XmlNote] = []
        self.divisions = Fraction(1)
        """Units of a duration in a quarter."""
        self.transposition = 0
        """From the written to the sounding pitch, in semitones."""


@dataclass(frozen=True)
class Reading:
    """What is read of a score so far; times in quarters from the start."""

    starts: list[Fraction] = field(default_factory=lambda: [Fraction(0)])
    """Start of each measure, and the end of the last one. The longest part decides, so that an
    incomplete measure does not shift a voice."""
    meters: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Time signatures, numerator and denominator, by measure."""
    tempos: dict[Fraction, float] = field(default_factory=dict)
    """Quarter notes per minute, by time."""
    keys: dict[Fraction, tuple[int, bool]] = field(default_factory=dict)
    """Sharps, and whether it is minor, by time."""
    chords: dict[Fraction, str] = field(default_factory=dict)
    """Chord symbols by time."""
    left_out: list[str] = field(default_factory=list)
    """What could not be read."""

    def signatures(self) -> Iterator[tuple[Fraction, int, int]]:
        """Yield time signatures by time, so that bar lines stay where they are.

        Each measure has one of its own length; one that is no whole number of eighths has none.
        """
        meter, last = (4, 4), None
        for measure, (start, stop) in enumerate(pairwise(self.starts)):
            count, unit = meter = self.meters.get(measure, meter)
            if stop - start != Fraction(4 * count, unit):
                unit = 8 if (stop - start).denominator > 1 else 4
                length = (stop - start) * unit / 4
                if not length or length.denominator > 1 or length > MAX_COUNT:
                    last = None  # the next measure begins with its own
                    continue
                count = int(length)
            if last != (count, unit):
                last = count, unit
                yield start, count, unit


class Measure:
    """A measure of a part while it is read; times in quarters."""

    def __init__(self, part: XmlPart, score: Reading) -> None:
        self.part, self.score = part, score
        self.now = self.onset = self.end = score.starts[-1]

    def read(self, measure: Element) -> Fraction:
        """Add the content of a measure to the score; return its end."""
        for element in measure:
            # The transposition comes last among the attributes, and changes the key.
            attributes = sorted(element, key=lambda child: child.tag != "transpose")
            for item in attributes if element.tag == "attributes" else [element]:
                try:
                    problem = self._take(item)
                except (ValueError, ArithmeticError, LookupError) as error:
                    problem = f"a {item.tag} with {error}"
                if problem:
                    where = f"measure {measure.get('number', len(self.score.starts))}"
                    self.score.left_out.append(
                        f"{where} of {self.part.name or 'a part'}: {problem}"
                    )
        return self.end

    def _take(self, element: Element) -> str:
        """Take an element; return what is left out of it, or raise for one without sense."""
        match element.tag:
            case "divisions":
                if (divisions := Fraction(element.text or "")) <= 0:
                    raise ValueError(f"{divisions} units in a quarter")
                self.part.divisions = divisions
            case "transpose":
                octaves = int(element.findtext("octave-change") or 0)
                chromatic = round(float(element.findtext("chromatic") or 0))
                self.part.transposition = chromatic + 12 * octaves
            case "time":
                self._take_meter(element)
            case "key":
                self._take_key(element)
            case "direction" | "sound":
                self._take_tempo(element)
            case "harmony":
                at = self.now + self._offset(element.find("offset"))
                self.score.chords[at] = chord_symbol(element, self.part.transposition)
            case "backup":
                self.now = max(self.now - self._duration(element), self.score.starts[-1])
            case "forward":
                self._advance(self._duration(element))
            case "note":
                return self._take_note(element)
        return ""

    def _advance(self, length: Fraction) -> None:
        self.now += length
        self.end = max(self.end, self.now)

    def _take_meter(self, time: Element) -> None:
        """Take 4/4, or 3+2/8, or 3/8 and 2/4 after each other; a free meter says nothing."""
        counts = [sum(map(int, (beats.text or "").split("+"))) for beats in time.findall("beats")]
        units = [int(unit.text or "") for unit in time.findall("beat-type")]
        unit = max(units, default=4)
        count = sum(unit * count // own for count, own in zip(counts, units, strict=True))
        if counts:
            if not 0 < count <= MAX_COUNT or unit & (unit - 1) or min(units) < 1:
                raise ValueError(f"{count} beats of a note value {unit}")
            self.score.meters[len(self.score.starts) - 1] = count, unit

    def _take_key(self, key: Element) -> None:
        """Take a key as it sounds, of the first part that has one and is not of drums."""
        instruments = self.part.instruments.values()
        if key.find("fifths") is None or any(one.program == DRUMS for one in instruments):
            return
        sharps = int(key.findtext("fifths") or "")
        if self.part.transposition % 12:
            sharps = (sharps + 7 * self.part.transposition + 5) % 12 - 5
        if abs(sharps) > 7:
            raise ValueError(f"{sharps} sharps")
        self.score.keys.setdefault(self.now, (sharps, key.findtext("mode") == "minor"))

    def _take_tempo(self, element: Element) -> None:
        """Take what is played, or else the metronome mark that is shown."""
        sound = element if element.tag == "sound" else element.find("sound")
        mark = element.find("direction-type/metronome")
        at = self.now + self._offset(element.find("offset"))
        if sound is not None and sound.get("tempo"):
            tempo = float(sound.get("tempo", ""))
        elif mark is not None and mark.find("per-minute") is not None:
            number = re.search(r"\d+(?:\.\d+)?", mark.findtext("per-minute") or "")
            unit = _note_value(mark.findtext("beat-unit"), len(mark.findall("beat-unit-dot")))
            tempo = float(number[0]) * float(unit) if number else 0.0
            tempo = self.score.tempos.get(at, tempo)
        else:
            return
        if not TEMPOS[0] <= tempo <= TEMPOS[1]:
            raise ValueError(f"a tempo of {tempo:g} quarters per minute")
        self.score.tempos[at] = tempo

    def _take_note(self, note: Element) -> str:
        if note.find("grace") is not None:
            return "a grace note"
        length, is_chord = self._duration(note), note.find("chord") is not None
        if not is_chord:
            self.onset = self.now
            self._advance(length)
        if note.find("cue") is not None:
            return "a cue note"
        if note.find("rest") is not None:
            return ""
        used = note.find("instrument")
        instruments = self.part.instruments
        first = next(iter(instruments.values()), Instrument())
        instrument = first if used is None else instruments.get(used.get("id"), first)
        if (pitch := note.find("pitch")) is not None:
            sounding = _midi_pitch(pitch) + self.part.transposition
            program = instrument.program
        else:
            sounding, program = _drum(note, instrument), DRUMS
        if not 0 <= sounding < 128:
            raise ValueError(f"MIDI pitch {sounding}")
        ties = [*note.findall("tie"), *note.findall("notations/tied")]
        kinds = frozenset(tie.get("type") for tie in ties)
        loudness = round(float(note.get("dynamics") or 100 * VELOCITY / FORTE) * FORTE / 100)
        velocity = min(max(loudness, 1), 127)
        row = XmlNote(self.onset, self.onset + length, sounding, kinds, velocity, program)
        self.part.notes.append(row)
        return ""

    def _offset(self, offset: Element | None) -> Fraction:
        return Fraction(0 if offset is None else offset.text or "") / self.part.divisions

    def _duration(self, element: Element) -> Fraction:
        length = Fraction((element.findtext("duration") or "").strip()) / self.part.divisions
        if length < 0:
            raise ValueError(f"a duration of {length}")
        return length


def _note_value(name: str | None, dots: int) -> Fraction:
    """Return a note value in quarters."""
    values = {known: value for value, known in NOTE_TYPES.items()}
    if name not in values:
        raise ValueError(f"the note value {name}")
    return values[name] * (2 - Fraction(1, 2**dots))


def _midi_pitch(pitch: Element) -> int:
    step, octave = pitch.findtext("step", "").strip(), pitch.findtext("octave", "")
    if step not in SEMITONES:
        raise ValueError(f"the step {step!r}")
    alter = float(pitch.findtext("alter") or 0)
    if not math.isfinite(alter):
        raise ValueError(f"an alteration of {alter}")
    return 12 * (int(octave) + 1) + SEMITONES[step] + round(alter)


def _drum(note: Element, instrument: Instrument) -> int:
    """Return the pitch of an unpitched note: that of its instrument, or by its place."""
    if instrument.drum is not None:
        return instrument.drum
    step, octave = (note.findtext(f"unpitched/display-{name}", "") for name in ("step", "octave"))
    place = step.strip(), octave.strip(), note.findtext("notehead", "normal").strip()
    drums = {(step, str(octave), head): drum
             for drum, (step, octave, head) in reversed(DRUM_PLACES.items())}  # fmt: skip
    return drums.get(place, SNARE)
