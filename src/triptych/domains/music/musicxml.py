"""MusicXML files (.mxl and .xml) as the content of MIDI files.

Grace notes are left out, a pickup is as long as it is written, and no repeat is played twice.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
import zipfile
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, zip_longest
from operator import itemgetter
from pathlib import Path

from triptych.domains.music.constraints import SEMITONES
from triptych.domains.music.notes import Notes, Part, Score, one_string_per_key
from triptych.errors import UserError

MUSICXML_SUFFIXES = (".mxl", ".xml", ".musicxml")
TICKS_PER_QUARTER = 5040
"""Divisible by 2^4, 3^2, 5 and 7: the times of all usual notes and tuplets are whole."""
VELOCITY = 80
EMPTY = ElementTree.Element("measure")
"""In place of the measures that a shorter part lacks."""


@dataclass
class _Part:
    """One part of a score, and how its file writes notes at the measure that is read."""

    name: str
    notes: list[tuple[Fraction, Fraction, int, bool]] = field(default_factory=list)
    """(onset, release, sounding MIDI pitch, whether a tie joins it to the note before it)."""
    divisions: int = 1
    """Units of a duration in a quarter."""
    transposition: int = 0
    """From the written to the sounding pitch, in semitones."""


@dataclass
class _Reading:
    """What is read of a score so far; times in quarters from the start."""

    starts: list[Fraction] = field(default_factory=lambda: [Fraction(0)])
    """Start of each measure, and the end of the last one. The longest part decides, so that an
    incomplete measure does not shift a voice."""
    meters: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Time signatures, numerator and denominator, by measure."""
    tempos: dict[Fraction, float] = field(default_factory=dict)
    """Quarter notes per minute, by time."""


def read_musicxml(path: Path, *, name: str) -> Score:
    """Read a score, all of program 0; raises UserError for a damaged file and one without notes.

    Parts without notes are parts too. Each measure has a time signature of its own length, so that
    a pickup is a short bar and bar lines stay in place; a measure that is no whole number of
    eighths has none.
    """
    try:
        if path.suffix == ".mxl":
            with zipfile.ZipFile(path) as archive:
                files = (file for file in archive.namelist() if not file.startswith("META-INF/"))
                content = archive.read(next(f for f in files if f.endswith(MUSICXML_SUFFIXES[1:])))
        else:
            content = path.read_bytes()
        root = ElementTree.fromstring(content)
        names = {
            part.get("id"): part.findtext("part-name") or "" for part in root.iter("score-part")
        }
        elements, score = root.findall("part"), _Reading()
        parts = [_Part(names.get(part.get("id"), "")) for part in elements]
        columns = (part.findall("measure") for part in elements)
        for measures in zip_longest(*columns, fillvalue=EMPTY):
            pairs = zip(measures, parts, strict=True)
            score.starts.append(max(_read_measure(*pair, score) for pair in pairs))
    # A damaged archive or document raises any of a dozen types.
    except Exception as error:
        raise UserError(f"{path} is not a MusicXML file that can be read ({error!r})") from error
    rows = [row for number, part in enumerate(parts) for row in _joined(part, number)]
    if not rows:
        raise UserError(f"{name} holds no notes")
    notes = Notes.of(rows)
    notes = one_string_per_key(notes, notes.onset, least=1)
    tempos = {_ticks(time): round(60e6 / tempo) for time, tempo in score.tempos.items()}
    return Score(
        name,
        [Part(part.name, is_drum=False) for part in parts],
        notes.sorted("part", "onset", "release", "pitch"),
        TICKS_PER_QUARTER,
        _ticks(score.starts[-1]),
        sorted(tempos.items()),
        _signatures(score),
    )


def _read_measure(measure: ElementTree.Element, part: _Part, score: _Reading) -> Fraction:
    """Add a measure of a part to the score, whose earlier measures are read; return its end."""
    now = end = onset = score.starts[-1]
    for element in measure:
        duration = Fraction(element.findtext("duration", "0")) / part.divisions
        if element.tag == "attributes":
            part.divisions = int(element.findtext("divisions", part.divisions))
            if element.find("transpose") is not None:
                octaves = int(element.findtext("transpose/octave-change", 0))
                part.transposition = int(element.findtext("transpose/chromatic", 0)) + 12 * octaves
            count, unit = element.findtext("time/beats", ""), element.findtext("time/beat-type")
            if count.isdigit() and unit:  # not 3+2
                score.meters[len(score.starts) - 1] = int(count), int(unit)
        elif element.tag in ("direction", "sound"):
            sound = element if element.tag == "sound" else element.find("sound")
            if sound is not None and float(sound.get("tempo") or 0) > 0:
                score.tempos[now] = float(sound.get("tempo", ""))
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
                sounding = _midi_pitch(pitch) + part.transposition
                part.notes.append((onset, onset + duration, sounding, tied))
        end = max(end, now)
    return end


def _midi_pitch(pitch: ElementTree.Element) -> int:
    step, octave = pitch.findtext("step", ""), pitch.findtext("octave", "")
    alter = round(float(pitch.findtext("alter", "0")))
    return 12 * (int(octave) + 1) + SEMITONES[step] + alter


def _ticks(quarters: Fraction) -> int:
    return round(quarters * TICKS_PER_QUARTER)


def _joined(part: _Part, number: int) -> list[list[int]]:
    """Return the notes of a part as rows of `Notes.of`, in ticks, tied ones as one."""
    rows: list[list[int]] = []
    open_notes: dict[tuple[int, Fraction], list[int]] = {}  # row by pitch and release
    for onset, release, pitch, is_continued in sorted(part.notes, key=itemgetter(0)):
        row = open_notes.pop((pitch, onset), None) if is_continued else None
        if row is None:
            row = [pitch, _ticks(onset), 0, VELOCITY, number, 0]
            rows.append(row)
        row[2] = _ticks(release)
        open_notes[pitch, release] = row
    return rows


def _signatures(score: _Reading) -> list[tuple[int, int, int]]:
    """Return `Score.time_signatures`."""
    signatures: list[tuple[int, int, int]] = []
    meter = 4, 4
    for measure, (start, stop) in enumerate(pairwise(score.starts)):
        count, unit = meter = score.meters.get(measure, meter)
        if stop - start != Fraction(4 * count, unit):
            whole = 8 if (stop - start).denominator > 1 else 4
            length = (stop - start) * whole / 4
            if not length or length.denominator > 1:
                continue
            count, unit = int(length), whole
        if not signatures or signatures[-1][1:] != (count, unit):
            signatures.append((_ticks(start), count, unit))
    return signatures
