"""MusicXML files (.mxl, .musicxml and .xml) as the content of MIDI files.

A pickup is as long as it is written, and what repeat signs enclose sounds once, with all its
endings. Grace notes and cue notes are left out.
"""

from __future__ import annotations

import codecs
import io
import math
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from html.entities import html5
from itertools import groupby, pairwise, zip_longest
from operator import itemgetter
from xml.etree.ElementTree import Element

from triptych.domains.music.chords import SEMITONES, chord_symbol
from triptych.domains.music.notation import DRUM_PLACES, FORTE, NOTE_TYPES, VELOCITY
from triptych.domains.music.notes import DRUMS, Notes, Part, Score, one_string_per_key
from triptych.errors import UserError

MUSICXML_SUFFIXES = (".mxl", ".xml", ".musicxml")
TICKS_PER_QUARTER = 5040
"""Divisible by 2^4, 3^2, 5 and 7: the times of all usual notes and tuplets are whole."""
MAX_BYTES = 100_000_000
"""Largest document that an archive may unpack to."""
EMPTY = Element("measure")
"""In place of the measures that a shorter part lacks."""
MAX_COUNT = 255
"""Largest numerator of a time signature of MIDI files."""
TEMPOS = (4.0, 6000.0)
"""Slowest and fastest tempo that is no damage, in quarters per minute; MIDI has none below."""
SNARE = 38


def parse_musicxml(content: bytes, *, name: str) -> Score:
    """Parse the bytes of a score, compressed or not.

    Parts without notes are parts too. Each measure has a time signature of its own length, so that
    a pickup is a short bar and bar lines stay in place; a measure that is no whole number of
    eighths has none. What cannot be read is told in `left_out`. Raises UserError for content that
    is no score and for one without notes.
    """
    score = Reading()
    try:
        root = _parse(_document(content), score.left_out)
    # A damaged archive or document raises any of a dozen types.
    except Exception as error:
        raise UserError(f"{name} is not a MusicXML file that can be read ({error!r})") from error
    elements = root.findall("part")
    if not elements:
        raise UserError(
            f"{name} holds no parts of a score; expected MusicXML, found the element <{root.tag}>"
        )
    entries = {entry.get("id"): entry for entry in root.iter("score-part")}
    parts = [XmlPart(entries.get(element.get("id"), EMPTY), score) for element in elements]
    columns = (element.findall("measure") for element in elements)
    for measures in zip_longest(*columns, fillvalue=EMPTY):
        pairs = zip(measures, parts, strict=True)
        score.starts.append(max(part.read(measure) for measure, part in pairs))
    listed, rows = list[Part](), list[list[int]]()
    for part in parts:
        # Drums of a part that plays pitches too are a part of their own, as in MIDI files.
        for is_drum in sorted({program == DRUMS for *_, program in part.notes}) or [False]:
            rows += _joined(part, len(listed), is_drum)
            listed.append(Part(part.name, is_drum))
    if not rows:
        found = f"; {score.left_out[0]}" if score.left_out else ""
        raise UserError(f"{name} holds no notes{found}")
    notes = Notes.of(rows)
    notes = one_string_per_key(notes, notes.onset, least=1)
    tempos = {_ticks(time): round(60e6 / tempo) for time, tempo in score.tempos.items()}
    # Those that differ from the one before.
    keys = [next(same) for _, same in groupby(sorted(score.keys.items()), itemgetter(1))]
    return Score(
        name,
        listed,
        notes.sorted("part", "onset", "release", "pitch"),
        TICKS_PER_QUARTER,
        _ticks(score.starts[-1]),
        sorted(tempos.items()),
        [(_ticks(time), count, unit) for time, count, unit in score.signatures()],
        [(_ticks(time), *key) for time, key in keys],
        sorted((_ticks(time), symbol) for time, symbol in score.chords.items()),
        score.left_out,
        credits=_credits(root),
    )


def _credits(root: Element) -> list[tuple[str, str]]:
    """Return the title of a score, if it has one, and its creators, such as the composer."""
    title = root.findtext("work/work-title") or root.findtext("movement-title")
    creators = root.iterfind("identification/creator")
    named = [(creator.get("type", "composer"), creator.text) for creator in creators]
    told = ((kind, (text or "").strip()) for kind, text in (("title", title), *named))
    return [(kind, text) for kind, text in told if text]


def _document(content: bytes) -> bytes:
    """Return the document of a score, which an archive names in its container."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [n for n in archive.namelist() if n.lower().endswith(MUSICXML_SUFFIXES[1:])]
        documents = [name for name in names if not name.startswith("META-INF/")]
        if "META-INF/container.xml" in names:
            container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
            roots = (element.get("full-path") for element in container.iter() if element.attrib)
            documents = [root for root in roots if root in archive.namelist()] or documents
        if archive.getinfo(documents[0]).file_size > MAX_BYTES:
            raise ValueError(f"{documents[0]} unpacks to more than {MAX_BYTES:,} bytes")
        return archive.read(documents[0])


def _parse(document: bytes, left_out: list[str]) -> Element:
    """Return the root of a document without namespaces; the start of a damaged one."""
    builder = ElementTree.TreeBuilder()
    if not document.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
        try:
            document.decode()
        except UnicodeDecodeError:  # declared as UTF-8 by some programs of Windows
            document = document.replace(b'"UTF-8"', b'"windows-1252"', 1)
    parser = ElementTree.XMLParser(target=builder)
    parser.entity.update({name.rstrip(";"): text for name, text in html5.items()})
    try:
        parser.feed(document)
        root = parser.close()
    except ElementTree.ParseError as error:
        if (root := builder.close()) is None:
            raise
        left_out.append(f"what follows damage in the document ({error})")
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _ticks(quarters: Fraction) -> int:
    return round(quarters * TICKS_PER_QUARTER)


def _joined(part: XmlPart, number: int, is_drum: bool) -> list[list[int]]:
    """Return the notes of a part as rows of `Notes.of`, in ticks, tied ones as one."""
    rows: list[list[int]] = []
    open_notes: dict[tuple[int, Fraction], tuple[list[int], bool]] = {}  # by pitch and release
    own = (note for note in part.notes if (note[-1] == DRUMS) == is_drum)
    for onset, release, pitch, ties, velocity, program in sorted(own, key=itemgetter(0)):
        row, goes_on = open_notes.pop((pitch, onset), ([], False))
        if not row or not (goes_on or "stop" in ties):
            row = [pitch, _ticks(onset), 0, velocity, number, program]
            rows.append(row)
        row[2] = _ticks(release)
        open_notes[pitch, release] = row, "start" in ties
    return rows


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


class XmlPart:
    """Reads the measures of a part, and with them what the score says; times in quarters.

    entry: of the part in the list of parts.
    """

    def __init__(self, entry: Element, score: Reading) -> None:
        self.score = score
        self.name = " ".join((entry.findtext("part-name") or "").split())
        self.instruments: dict[str | None, tuple[int, int | None]] = {}
        """Program and MIDI pitch of its unpitched notes of each instrument."""
        for midi in entry.findall("midi-instrument"):
            try:
                self.instruments[midi.get("id")] = _instrument(midi)
            except ValueError as error:
                score.left_out.append(f"an instrument of {self.name or 'a part'} with {error}")
        self.notes: list[tuple[Fraction, Fraction, int, set[str | None], int, int]] = []
        """(onset, release, MIDI pitch as it sounds, types of its ties, velocity, program)."""
        self.divisions = Fraction(1)
        """Units of a duration in a quarter."""
        self.transposition = 0
        """From the written to the sounding pitch, in semitones."""
        self.now = self.onset = self.end = Fraction(0)

    def read(self, measure: Element) -> Fraction:
        """Add the content of a measure to the score; return its end."""
        self.now = self.onset = self.end = self.score.starts[-1]
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
                    self.score.left_out.append(f"{where} of {self.name or 'a part'}: {problem}")
        return self.end

    def _take(self, element: Element) -> str:
        """Take an element; return what is left out of it, or raise for one without sense."""
        match element.tag:
            case "divisions":
                if (divisions := Fraction(element.text or "")) <= 0:
                    raise ValueError(f"{divisions} units in a quarter")
                self.divisions = divisions
            case "transpose":
                octaves = int(element.findtext("octave-change") or 0)
                chromatic = round(float(element.findtext("chromatic") or 0))
                self.transposition = chromatic + 12 * octaves
            case "time":
                self._take_meter(element)
            case "key":
                self._take_key(element)
            case "direction" | "sound":
                self._take_tempo(element)
            case "harmony":
                at = self.now + self._offset(element.find("offset"))
                self.score.chords[at] = chord_symbol(element, self.transposition)
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
        programs = {program for program, _ in self.instruments.values()}
        if key.find("fifths") is None or DRUMS in programs:
            return
        sharps = int(key.findtext("fifths") or "")
        if self.transposition % 12:
            sharps = (sharps + 7 * self.transposition + 5) % 12 - 5
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
            values = {name: value for value, name in NOTE_TYPES.items()}
            name, dots = mark.findtext("beat-unit", ""), len(mark.findall("beat-unit-dot"))
            if name not in values:
                raise ValueError(f"the note value {name}")
            unit = values[name] * (2 - Fraction(1, 2**dots))
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
        first = next(iter(self.instruments.values()), (0, None))
        used = note.find("instrument")
        program, drum = first if used is None else self.instruments.get(used.get("id"), first)
        if (pitch := note.find("pitch")) is not None:
            sounding = _midi_pitch(pitch) + self.transposition
        else:
            sounding, program = _drum_of(note) if drum is None else drum, DRUMS
        if not 0 <= sounding < 128:
            raise ValueError(f"MIDI pitch {sounding}")
        ties = [*note.findall("tie"), *note.findall("notations/tied")]
        kinds = {tie.get("type") for tie in ties}
        loudness = round(float(note.get("dynamics") or 100 * VELOCITY / FORTE) * FORTE / 100)
        velocity = min(max(loudness, 1), 127)
        times = self.onset, self.onset + length
        self.notes.append((*times, sounding, kinds, velocity, program))
        return ""

    def _offset(self, offset: Element | None) -> Fraction:
        return Fraction(0 if offset is None else offset.text or "") / self.divisions

    def _duration(self, element: Element) -> Fraction:
        length = Fraction((element.findtext("duration") or "").strip()) / self.divisions
        if length < 0:
            raise ValueError(f"a duration of {length}")
        return length


def _midi_pitch(pitch: Element) -> int:
    step, octave = pitch.findtext("step", "").strip(), pitch.findtext("octave", "")
    if step not in SEMITONES:
        raise ValueError(f"the step {step!r}")
    alter = float(pitch.findtext("alter") or 0)
    if not math.isfinite(alter):
        raise ValueError(f"an alteration of {alter}")
    return 12 * (int(octave) + 1) + SEMITONES[step] + round(alter)


def _instrument(midi: Element) -> tuple[int, int | None]:
    """Return program and pitch of unpitched notes of an instrument; ValueError for others."""
    drum = midi.findtext("midi-unpitched")
    # Channel 10 alone says nothing: some programs number the channels of all parts.
    program = DRUMS if drum else max(int(midi.findtext("midi-program") or 1) - 1, 0)
    pitch = None if drum is None else int(drum) - 1
    if not (DRUMS <= program < 128 and 0 <= (pitch or 0) < 128):
        raise ValueError(f"program {program + 1}, pitch {drum}")
    return program, pitch


def _drum_of(note: Element) -> int:
    """Return the pitch of an unpitched note by its place."""
    step, octave = (note.findtext(f"unpitched/display-{name}", "") for name in ("step", "octave"))
    place = step.strip(), octave.strip(), note.findtext("notehead", "normal").strip()
    drums = {(step, str(octave), head): drum
             for drum, (step, octave, head) in reversed(DRUM_PLACES.items())}  # fmt: skip
    return drums.get(place, SNARE)
