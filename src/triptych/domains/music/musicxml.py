"""MusicXML files (.mxl and .xml) as parts of notes, and as MIDI.

Grace notes are left out, a pickup is as long as it is written, and no repeat is played twice.
"""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
import zipfile
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from triptych.domains.music.notes import Notes, Part, Score, one_string_per_key
from triptych.errors import UserError

SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
MUSICXML_SUFFIXES = (".mxl", ".xml", ".musicxml")
TICKS_PER_QUARTER = 5040
"""Divisible by 2^4, 3^2, 5 and 7: the times of all usual notes and tuplets are whole."""
VELOCITY = 80


class ScoreNote(NamedTuple):
    """One written note; tied notes are several."""

    measure: int
    onset: Fraction
    """In the measure, in quarters."""
    duration: Fraction
    """In quarters."""
    pitch: int
    """Sounding MIDI pitch."""
    is_continued: bool
    """Whether a tie joins it to the note before it."""


@dataclass
class ScorePart:
    """One part of a score; times in quarters."""

    name: str
    measures: list[Fraction] = field(default_factory=list)
    """Length of each measure."""
    notes: list[ScoreNote] = field(default_factory=list)
    meters: list[tuple[int, int, int]] = field(default_factory=list)
    """(measure, numerator, denominator) of the time signatures."""
    tempos: list[tuple[int, Fraction, float]] = field(default_factory=list)
    """(measure, onset in it, quarter notes per minute)."""


def read_musicxml(path: Path) -> list[ScorePart]:
    """Read the parts of a score; raises UserError for a damaged file."""
    try:
        if path.suffix == ".mxl":
            with zipfile.ZipFile(path) as archive:
                documents = [
                    name
                    for name in archive.namelist()
                    if name.endswith((".xml", ".musicxml")) and not name.startswith("META-INF/")
                ]
                content = archive.read(documents[0])
        else:
            content = path.read_bytes()
        root = ElementTree.fromstring(content)
        names = {
            part.get("id"): part.findtext("part-name") or "" for part in root.iter("score-part")
        }
        return [_read_part(part, names.get(part.get("id"), "")) for part in root.findall("part")]
    # A damaged archive or document raises any of a dozen types.
    except Exception as error:
        raise UserError(f"{path} is not a MusicXML file that can be read ({error!r})") from error


def measure_starts(parts: list[ScorePart]) -> list[Fraction]:
    """Return the start of each measure, and the end of the last one, in quarters.

    The longest part decides, so that an incomplete measure does not shift a voice.
    """
    measures = itertools.zip_longest(*(part.measures for part in parts), fillvalue=Fraction(0))
    return [*itertools.accumulate(map(max, measures), initial=Fraction(0))]


def score_to_midi(parts: list[ScorePart], programs: list[int], *, name: str) -> Score:
    """Return a score as the content of a MIDI file; programs: of each part.

    Each measure has a time signature of its own length, so that a pickup is a short bar and bar
    lines stay in place; a measure that is no whole number of eighths has none.
    """
    starts = measure_starts(parts)

    def ticks(quarters: Fraction) -> int:
        return round(quarters * TICKS_PER_QUARTER)

    midi_parts: list[Part] = []
    rows: list[tuple[int, ...]] = []  # of `Notes.of`
    for part, program in zip(parts, programs, strict=True):
        spans: list[list[Fraction]] = []  # onset and release
        pitches: list[int] = []
        open_notes: dict[tuple[int, Fraction], list[Fraction]] = {}  # by pitch and release
        for note in sorted(part.notes, key=lambda note: starts[note.measure] + note.onset):
            onset = starts[note.measure] + note.onset
            release = onset + note.duration
            span = open_notes.pop((note.pitch, onset), None) if note.is_continued else None
            if span is None:
                span = [onset, release]
                spans.append(span)
                pitches.append(note.pitch)
            span[1] = release
            open_notes[note.pitch, release] = span
        if spans:
            rows += [
                (pitch, ticks(onset), ticks(release), VELOCITY, len(midi_parts), program)
                for pitch, (onset, release) in zip(pitches, spans, strict=True)
            ]
            midi_parts.append(Part(part.name, is_drum=False))
    if not rows:
        raise UserError(f"{name} holds no notes")
    notes = Notes.of(rows)
    notes = one_string_per_key(notes, notes.onset, least=1)
    meters = {measure: (count, unit) for part in parts for measure, count, unit in part.meters}
    signatures: list[tuple[int, int, int]] = []
    meter = 4, 4
    for measure, (start, stop) in enumerate(itertools.pairwise(starts)):
        count, unit = meter = meters.get(measure, meter)
        if stop - start != Fraction(4 * count, unit):
            whole = 8 if (stop - start).denominator > 1 else 4
            length = (stop - start) * whole / 4
            if not length or length.denominator > 1:
                continue
            count, unit = int(length), whole
        if not signatures or signatures[-1][1:] != (count, unit):
            signatures.append((ticks(start), count, unit))
    tempos = {
        ticks(starts[measure] + onset): round(60e6 / tempo)
        for part in parts
        for measure, onset, tempo in part.tempos
        if tempo > 0
    }
    return Score(
        name,
        midi_parts,
        notes.sorted("part", "onset", "release", "pitch"),
        TICKS_PER_QUARTER,
        ticks(starts[-1]),
        sorted(tempos.items()),
        signatures,
    )


def _read_part(part: ElementTree.Element, name: str) -> ScorePart:
    divisions, transposition = 1, 0
    score_part = ScorePart(name)
    for number, measure in enumerate(part.findall("measure")):
        now = end = onset = Fraction(0)
        for element in measure:
            duration = Fraction(element.findtext("duration", "0")) / divisions
            if element.tag == "attributes":
                divisions = int(element.findtext("divisions", divisions))
                if element.find("transpose") is not None:
                    octaves = int(element.findtext("transpose/octave-change", 0))
                    transposition = int(element.findtext("transpose/chromatic", 0)) + 12 * octaves
                count, unit = element.findtext("time/beats", ""), element.findtext("time/beat-type")
                if count.isdigit() and unit:  # not 3+2
                    score_part.meters.append((number, int(count), int(unit)))
            elif element.tag in ("direction", "sound"):
                sound = element if element.tag == "sound" else element.find("sound")
                if sound is not None and sound.get("tempo"):
                    score_part.tempos.append((number, now, float(sound.get("tempo", ""))))
            elif element.tag == "backup":
                now -= duration
            elif element.tag == "forward":
                now += duration
            elif element.tag == "note" and element.find("grace") is None:
                if element.find("chord") is None:
                    onset, now = now, now + duration
                pitch = element.find("pitch")
                if pitch is not None:
                    tied = any(tie.get("type") == "stop" for tie in element.findall("tie"))
                    sounding = _midi_pitch(pitch) + transposition
                    score_part.notes.append(ScoreNote(number, onset, duration, sounding, tied))
            end = max(end, now)
        score_part.measures.append(end)
    return score_part


def _midi_pitch(pitch: ElementTree.Element) -> int:
    step, octave = pitch.findtext("step", ""), pitch.findtext("octave", "")
    alter = round(float(pitch.findtext("alter", "0")))
    return 12 * (int(octave) + 1) + SEMITONES[step] + alter
