"""MusicXML written: a readable score of a piece on a grid.

A note that crosses a bar line or a strong beat becomes tied notes. Where times are those of a
performance, they move to the nearest eighths or twelfths of a quarter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from xml.etree.ElementTree import Element, indent, tostring

from triptych.domains.music.chords import STEPS, harmony_element, on_fifths
from triptych.domains.music.constraints import SEMITONES
from triptych.domains.music.musicxml_measures import DRUM_PLACES, FORTE, VELOCITY
from triptych.domains.music.notation import (
    MAX_VOICES,
    MIDDLE_C,
    Bar,
    Chord,
    Note,
    Span,
    Value,
    bars_of,
    by_bar,
    divide,
    segments,
    snapped,
    two_staves,
    voices_of,
)
from triptych.domains.music.notes import DRUMS, Ids, Notes, Score

DIVISIONS = 10_080
"""Units of a duration in a quarter: 2^5, 3^2, 5 and 7 divide it."""
KEYBOARDS = {*range(24)}
"""Programs that are written on two staves if they have notes on both sides of OUTER."""
OUTER = (53, 67)
ACCIDENTALS = {-2: "flat-flat", -1: "flat", 0: "natural", 1: "sharp", 2: "double-sharp"}
HEADER = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE score-partwise PUBLIC '
    b'"-//Recordare//DTD MusicXML 4.0 Partwise//EN" "http://www.musicxml.org/dtds/partwise.dtd">\n'
)


@dataclass
class _Frame:
    """What a bar says besides notes."""

    key: tuple[int, bool] | None = None
    """Sharps, and whether it is minor."""
    elements: list[Element] = field(default_factory=list)
    """Tempos and chord symbols."""


def musicxml_bytes(score: Score) -> bytes:
    """Return a score as the content of a MusicXML file.

    One part for each part, of a keyboard on two staves where it needs both; drums as unpitched
    notes that last up to the next one, at most to the next quarter; chord symbols above the first
    part. Pedals are not written, and a key that changes within a bar is written where it begins.
    """
    listed, parts = _element("part-list"), list[Element]()
    ticks = score.bars()
    bars = bars_of(score, ticks)
    frame = _frame(score, ticks, bars)
    for number, part in enumerate(score.parts):
        own = score.notes[score.notes.part == number]
        sounds = sorted({*own.rows("program", "pitch")})
        sounds = sounds or [(DRUMS if part.is_drum else 0, MIDDLE_C)]
        listed.append(_listed(number, part.name, sounds))
        chords = _chords(own, ticks, bars, score.ticks_per_quarter)
        low, high = own.pitch.min(initial=MIDDLE_C), own.pitch.max(initial=MIDDLE_C)
        programs = {program for program, _ in sounds}
        is_wide = programs <= KEYBOARDS and low < OUTER[0] and high > OUTER[1]
        staves = two_staves(chords) if is_wide else [chords]
        parts.append(_part(number, bars, staves, programs, frame))
        frame = [_Frame(each.key) for each in frame]
    root = _element("score-partwise", listed, *parts, version="4.0")
    indent(root, " ")
    document: bytes = tostring(root, encoding="utf-8")
    return HEADER + document


def _element(tag: str, *content: Any, **attributes: Any) -> Element:
    """Return an element with its text or the elements that it holds; None is left out."""
    element = Element(tag, {name: str(value) for name, value in attributes.items()})
    for item in content:
        if isinstance(item, Element):
            element.append(item)
        elif item is not None:
            element.text = str(item)
    return element


def _units(quarters: Fraction) -> int:
    return round(quarters * DIVISIONS)


def _instrument(part: int, program: int, pitch: int) -> str:
    """Return the id of what plays a note: each drum is an instrument of its own."""
    return f"P{part + 1}-I{129 + pitch if program == DRUMS else program + 1}"


def _listed(number: int, name: str, sounds: list[tuple[int, int]]) -> Element:
    """Return the entry of a part; sounds: programs and pitches that it plays."""
    from pretty_midi import note_number_to_drum_name, program_to_instrument_name

    channel = number % 15
    instruments, midi, titles = {}, {}, []
    for program, pitch in sounds:
        key, is_drum = _instrument(number, program, pitch), program == DRUMS
        drum = note_number_to_drum_name(pitch) or f"Drum {pitch}"
        title = drum if is_drum else program_to_instrument_name(program)
        instruments[key] = _element("score-instrument", _element("instrument-name", title), id=key)
        midi[key] = _element(
            "midi-instrument",
            _element("midi-channel", 10 if is_drum else channel + 1 + (channel > 8)),
            _element("midi-program", max(0, program) + 1),
            _element("midi-unpitched", pitch + 1) if is_drum else None,
            id=key,
        )
        titles.append("Drums" if is_drum else title)
    title = _element("part-name", name or titles[0])
    return _element("score-part", title, *instruments.values(), *midi.values(), id=f"P{number + 1}")


def _frame(score: Score, ticks: Ids, bars: list[Bar]) -> list[_Frame]:
    """Return keys, tempos and chord symbols by bar."""
    frame, starts = [_Frame() for _ in bars], [bar.start for bar in bars]
    events: list[tuple[Any, ...]] = [*score.key_signatures, *score.tempos, *score.chords]
    placed = snapped((tick for tick, *_ in events), ticks, bars, score.ticks_per_quarter)

    def place(tick: int) -> tuple[_Frame, Element]:
        bar = bisect_right(starts, placed[tick]) - 1
        return frame[bar], _element("offset", _units(placed[tick] - starts[bar]), sound="yes")

    for tick, sharps, is_minor in score.key_signatures:
        place(tick)[0].key = sharps, is_minor
    for tick, tempo in score.tempos:
        (own, offset), per_minute = place(tick), 60e6 / tempo
        shown = _element("per-minute", f"{per_minute:.4g}")
        mark = _element("metronome", _element("beat-unit", "quarter"), shown)
        content = _element("direction-type", mark), offset
        sound = _element("sound", tempo=f"{per_minute:.9g}")
        own.elements.append(_element("direction", *content, sound, placement="above"))
    for tick, symbol in score.chords:
        own, offset = place(tick)
        if (element := harmony_element(symbol)) is None:  # it has a form that MusicXML lacks
            words = _element("direction-type", _element("words", symbol))
            element = _element("direction", words, placement="above")
        element.append(offset)
        own.elements.append(element)
    return frame


def _chords(notes: Notes, ticks: Ids, bars: list[Bar], unit: int) -> list[Chord]:
    """Return the notes of a part, those of one onset and release together, by onset and height."""
    times = {*notes.onset.tolist(), *notes.release.tolist()}
    placed = snapped(times, ticks, bars, unit)
    onsets = sorted({placed[onset] for onset in notes.onset.tolist()})
    end = bars[-1].start + bars[-1].length
    chords: dict[tuple[Fraction, Fraction], list[Note]] = defaultdict(list)
    for *note, onset, release in notes.rows("pitch", "velocity", "program", "onset", "release"):
        least = Fraction(1, 12 if placed[onset].denominator % 3 == 0 else 8)
        start = min(placed[onset], end - least)
        stop = placed[release]
        if note[-1] == DRUMS:
            later = onsets[bisect_right(onsets, start) :]
            stop = min([Fraction(int(start) + 1), *later[:1]])
        if stop <= start:  # shorter than the grid
            stop = start + least
        chords[start, min(stop, end)].append(Note(*note))
    made = [Chord(*span, sorted(own)) for span, own in chords.items()]
    return sorted(made, key=lambda chord: (chord.onset, -chord.notes[-1].pitch))


def _part(
    number: int, bars: list[Bar], staves: list[list[Chord]], programs: set[int], frame: list[_Frame]
) -> Element:
    """Return the measures of a part."""
    voices = [[by_bar(voice, bars) for voice in voices_of(chords)] for chords in staves]
    part, key, meter = _element("part", id=f"P{number + 1}"), (0, False), (0, 0)
    for index, (bar, events) in enumerate(zip(bars, frame, strict=True)):
        attributes = _element("attributes", None if index else _element("divisions", DIVISIONS))
        if events.key is not None:
            key = events.key
            mode = _element("mode", "minor" if key[1] else "major")
            attributes.append(_element("key", _element("fifths", key[0]), mode))
        if bar.meter != meter:
            meter = bar.meter
            unit = _element("beat-type", meter[1])
            attributes.append(_element("time", _element("beats", meter[0]), unit))
        if not index:
            attributes.append(_element("staves", len(staves)))
            for place, chords in enumerate(staves, start=1):
                sign, line = _clef(chords, programs)
                content = _element("sign", sign), _element("line", line)
                attributes.append(_element("clef", *content, number=place))
        said = [attributes] * bool(len(attributes)) + events.elements
        measure = _element("measure", *said, number=bar.number)
        if bar.length != Fraction(4 * meter[0], meter[1]):
            measure.set("implicit", "yes")
        back = _element("backup", _element("duration", _units(bar.length)))
        for staff, own in enumerate(voices):
            for notes in _staff([voice[index] for voice in own], bar, number, staff, key):
                measure.extend([*[back] * (measure.find("note") is not None), *notes])
        part.append(measure)
    return part


def _clef(chords: list[Chord], programs: set[int]) -> tuple[str, int]:
    """Return the sign and line of a clef, by the median pitch."""
    pitches = sorted(note.pitch for chord in chords for note in chord.notes) or [MIDDLE_C]
    if DRUMS in programs:
        return "percussion", 3
    return ("F", 4) if pitches[len(pitches) // 2] < MIDDLE_C - 2 else ("G", 2)


def _staff(
    voices: list[list[Chord]], bar: Bar, part: int, staff: int, key: tuple[int, bool]
) -> Iterator[list[Element]]:
    """Yield the notes and rests of each voice of a staff in a measure."""
    unit = Fraction(4, bar.meter[1])
    span = Span(bar.start - bar.missing, unit, bar.meter[0])
    times = bar.start, bar.start + bar.length
    written = [divide(segments(own, *times), span) if own else [] for own in voices]
    signs = _accidentals([value for values in written for value in values], key)
    for place, values in enumerate(written):
        voice = str(MAX_VOICES * staff + place + 1), str(staff + 1)
        if values:
            yield [note for value in values for note in _notes(value, part, voice, key, signs)]
        elif place == 0:
            rest = _element("rest", measure="yes"), _element("duration", _units(bar.length))
            yield [
                _element("note", *rest, _element("voice", voice[0]), _element("staff", voice[1]))
            ]


def _accidentals(values: list[Value], key: tuple[int, bool]) -> dict[tuple[Fraction, int], str]:
    """Return the accidentals that a staff shows in a measure, by time and pitch.

    One holds up to the end of the measure, and a tied note needs none.
    """
    in_force: dict[tuple[str, int], int] = {}
    shown = {}
    for value in sorted(values, key=lambda value: value.start):
        for note in [n for c in value.chords if c.onset == value.start for n in c.notes]:
            step, alter, octave = _spelling(note.pitch, *key)
            place, sharps = STEPS.index(step), key[0]
            usual = (place < sharps) - (place >= 7 + sharps)
            if in_force.get((step, octave), usual) != alter:
                shown[value.start, note.pitch] = ACCIDENTALS[alter]
                in_force[step, octave] = alter
    return shown


def _spelling(pitch: int, sharps: int, is_minor: bool) -> tuple[str, int, int]:
    """Return the step, its alteration and the octave of a pitch in a key.

    In C major from E flat to G sharp on the circle of fifths, in A minor from B flat to D sharp.
    """
    first = sharps - 3 + is_minor
    step, alter = on_fifths(first + (7 * pitch - first) % 12)
    return step, alter, (pitch - alter - SEMITONES[step]) // 12 - 1


def _notes(
    value: Value,
    part: int,
    voice: tuple[str, str],
    key: tuple[int, bool],
    signs: dict[tuple[Fraction, int], str],
) -> Iterator[Element]:
    """Yield a rest, or the notes of a chord; voice: its number and that of its staff."""
    sounding = sorted((note, chord) for chord in value.chords for note in chord.notes)
    (actual, normal), (name, is_dotted) = value.ratio, value.shape
    for place, (note, chord) in enumerate(sounding or [(None, None)]):
        element, ties, head, sign = _element("note"), list[str](), None, None
        if note is None or chord is None:
            element.append(_element("rest"))
        else:
            if place:
                element.append(_element("chord"))
            if note.velocity != VELOCITY:  # in percent of forte
                element.set("dynamics", f"{100 * note.velocity / FORTE:.2f}")
            if note.program == DRUMS:
                where = DRUM_PLACES.get(note.pitch, ("E", 4, "normal"))
                content = {"display-step": where[0], "display-octave": where[1]}
                kind, head = "unpitched", where[2]
            else:
                step, alter, octave = _spelling(note.pitch, *key)
                kind, content = "pitch", {"step": step, "alter": alter or None, "octave": octave}
                sign = signs.get((value.start, note.pitch))
            shown = (_element(name, text) for name, text in content.items() if text is not None)
            element.append(_element(kind, *shown))
            ties = ["stop"] * (chord.onset < value.start) + ["start"] * (chord.release > value.stop)
        element.append(_element("duration", _units(value.stop) - _units(value.start)))
        element.extend(_element("tie", type=tie) for tie in ties)
        if note is not None:
            element.append(_element("instrument", id=_instrument(part, note.program, note.pitch)))
        element.append(_element("voice", voice[0]))
        element.append(_element("type", name))
        element.extend([_element("dot")] * is_dotted)
        if sign is not None:
            element.append(_element("accidental", sign))
        if actual != normal:
            counts = _element("actual-notes", actual), _element("normal-notes", normal)
            element.append(_element("time-modification", *counts))
        if head is not None:
            element.append(_element("notehead", head))
        element.append(_element("staff", voice[1]))
        notations = [_element("tied", type=tie) for tie in ties]
        if value.bracket and not place:
            notations.append(_element("tuplet", type=value.bracket, number=1))
        if notations:
            element.append(_element("notations", *notations))
        yield element
