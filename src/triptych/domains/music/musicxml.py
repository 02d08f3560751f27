"""MusicXML files (.mxl, .musicxml and .xml) as the content of MIDI files.

A pickup is as long as it is written, and what repeat signs enclose sounds once, with all its
endings. Grace notes and cue notes are left out.
"""

from __future__ import annotations

import codecs
import io
import xml.etree.ElementTree as ElementTree
import zipfile
from fractions import Fraction
from html.entities import html5
from itertools import groupby, zip_longest
from operator import itemgetter

from triptych.domains.music.musicxml_measures import Instrument, Measure, Reading, XmlPart
from triptych.domains.music.notes import DRUMS, Notes, Part, Score, one_string_per_key
from triptych.errors import UserError

MUSICXML_SUFFIXES = (".mxl", ".xml", ".musicxml")
TICKS_PER_QUARTER = 5040
"""Divisible by 2^4, 3^2, 5 and 7: the times of all usual notes and tuplets are whole."""
MAX_BYTES = 100_000_000
"""Largest document that an archive may unpack to."""
EMPTY = ElementTree.Element("measure")
"""In place of the measures that a shorter part lacks."""


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
    parts = [_part(entries.get(element.get("id"), EMPTY), score) for element in elements]
    columns = (element.findall("measure") for element in elements)
    for measures in zip_longest(*columns, fillvalue=EMPTY):
        pairs = zip(measures, parts, strict=True)
        score.starts.append(max(Measure(part, score).read(measure) for measure, part in pairs))
    listed, rows = list[Part](), list[list[int]]()
    for part in parts:
        # Drums of a part that plays pitches too are a part of their own, as in MIDI files.
        for is_drum in sorted({note.program == DRUMS for note in part.notes}) or [False]:
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
    )


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


def _parse(document: bytes, left_out: list[str]) -> ElementTree.Element:
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


def _part(entry: ElementTree.Element, score: Reading) -> XmlPart:
    """Return a part by its entry in the list of parts."""
    name = " ".join((entry.findtext("part-name") or "").split())
    instruments: dict[str | None, Instrument] = {}
    for midi in entry.findall("midi-instrument"):
        try:
            drum = midi.findtext("midi-unpitched")
            # Channel 10 alone says nothing: some programs number the channels of all parts.
            program = DRUMS if drum else max(int(midi.findtext("midi-program") or 1) - 1, 0)
            instrument = Instrument(program, None if drum is None else int(drum) - 1)
            if not (DRUMS <= program < 128 and 0 <= (instrument.drum or 0) < 128):
                raise ValueError(f"program {program + 1}, pitch {drum}")
            instruments[midi.get("id")] = instrument
        except ValueError as error:
            score.left_out.append(f"an instrument of {name or 'a part'} with {error}")
    return XmlPart(name, instruments)


def _ticks(quarters: Fraction) -> int:
    return round(quarters * TICKS_PER_QUARTER)


def _joined(part: XmlPart, number: int, is_drum: bool) -> list[list[int]]:
    """Return the notes of a part as rows of `Notes.of`, in ticks, tied ones as one."""
    rows: list[list[int]] = []
    open_notes: dict[tuple[int, Fraction], tuple[list[int], bool]] = {}  # by pitch and release
    own = (note for note in part.notes if (note.program == DRUMS) == is_drum)
    for onset, release, pitch, ties, velocity, program in sorted(own, key=itemgetter(0)):
        row, goes_on = open_notes.pop((pitch, onset), ([], False))
        if not row or not (goes_on or "stop" in ties):
            row = [pitch, _ticks(onset), 0, velocity, number, program]
            rows.append(row)
        row[2] = _ticks(release)
        open_notes[pitch, release] = row, "start" in ties
    return rows
