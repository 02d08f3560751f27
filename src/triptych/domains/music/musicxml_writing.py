"""MusicXML written: a readable score of a piece on a grid.

A note that crosses a bar line or a strong beat becomes tied notes. Where times are those of a
performance, they move to the nearest eighths or twelfths of a quarter.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element, indent, tostring

import numpy as np

from triptych.domains.music.chords import (
    MUSICXML_KINDS,
    NO_CHORD,
    SEMITONES,
    STEPS,
    on_fifths,
    parse_chord,
)
from triptych.domains.music.notation import (
    DRUM_PLACES,
    FORTE,
    MAX_VOICES,
    MIDDLE_C,
    VELOCITY,
    Bar,
    Chord,
    Note,
    Span,
    Value,
    bars_of,
    by_bar,
    divide,
    full_release,
    segments,
    snapped,
    two_staves,
    voices_of,
)
from triptych.domains.music.notes import DRUMS, Ids, Notes, Score

Key: TypeAlias = tuple[int, bool]
"""Sharps, and whether it is minor."""

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


def musicxml_bytes(score: Score) -> bytes:
    """Return a score as the content of a MusicXML file.

    One part for each part, of a keyboard on two staves where it needs both; drums as unpitched
    notes that last up to the next one, at most to the next quarter; chord symbols above the first
    part. Pedals are not written, and a key that changes within a bar is written where it begins.
    """
    listed, parts = list[Element](), list[Element]()
    ticks = score.bars()
    bars = bars_of(score, ticks)
    keys, said = _frame(score, ticks, bars)
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
        parts.append(_part(number, bars, staves, DRUMS in programs, keys, {} if number else said))
    title = next((text for kind, text in score.credits if kind == "title"), None)
    creators = [
        _element("creator", text, type=kind) for kind, text in score.credits if kind != "title"
    ]
    about = [
        _element("work", {"work-title": title}) if title else None,
        _element("identification", *creators) if creators else None,
    ]
    content = [*about, _element("part-list", *listed), *parts]
    root = _element("score-partwise", *content, version="4.0")
    indent(root, " ")
    document: bytes = tostring(root, encoding="utf-8")
    return HEADER + document


def _element(tag: str, *content: Any, **attributes: Any) -> Element:
    """Return an element with the elements that it holds, tags with their texts, or its text.

    None is left out, as content and as the text of a tag.
    """
    element = Element(tag, {name: str(value) for name, value in attributes.items()})
    for item in content:
        if isinstance(item, Element):
            element.append(item)
        elif isinstance(item, dict):
            element.extend(_element(tag, text) for tag, text in item.items() if text is not None)
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
        instruments[key] = _element("score-instrument", {"instrument-name": title}, id=key)
        sound = {
            "midi-channel": 10 if is_drum else channel + 1 + (channel > 8),
            "midi-program": max(0, program) + 1,
            "midi-unpitched": pitch + 1 if is_drum else None,
        }
        midi[key] = _element("midi-instrument", sound, id=key)
        titles.append("Drums" if is_drum else title)
    content = {"part-name": name or titles[0]}, *instruments.values(), *midi.values()
    return _element("score-part", *content, id=f"P{number + 1}")


def _frame(
    score: Score, ticks: Ids, bars: list[Bar]
) -> tuple[dict[int, Key], dict[int, list[Element]]]:
    """Return keys, and elements of tempos and chord symbols, by index of a bar."""
    keys: dict[int, Key] = {}
    said: dict[int, list[Element]] = defaultdict(list)
    starts = [bar.start for bar in bars]
    events: list[tuple[Any, ...]] = [*score.key_signatures, *score.tempos, *score.chords]
    placed = snapped((tick for tick, *_ in events), ticks, bars, score.ticks_per_quarter)

    def place(tick: int) -> tuple[int, Element]:
        bar = bisect_right(starts, placed[tick]) - 1
        return bar, _element("offset", _units(placed[tick] - starts[bar]), sound="yes")

    for tick, sharps, is_minor in score.key_signatures:
        keys[place(tick)[0]] = sharps, is_minor
    for tick, tempo in score.tempos:
        (bar, offset), per_minute = place(tick), 60e6 / tempo
        shown = {"beat-unit": "quarter", "per-minute": f"{per_minute:.4g}"}
        mark = _element("direction-type", _element("metronome", shown))
        sound = _element("sound", tempo=f"{per_minute:.9g}")
        said[bar].append(_element("direction", mark, offset, sound, placement="above"))
    for tick, symbol in score.chords:
        bar, offset = place(tick)
        said[bar].append(_harmony(symbol, offset))
    return keys, said


def _harmony(text: str, offset: Element) -> Element:
    """Return a chord symbol; as words where it has a form that MusicXML lacks."""
    is_no_chord = text.strip() in NO_CHORD
    chord = ("C", "", "", "") if is_no_chord else parse_chord(text)  # even none has a root
    root, kind, degrees, bass = chord or ("", "", "?", "")
    if not re.fullmatch(r"(,?\*?[#b]*\d+)*/([A-G][#b]*)?", f"{degrees}/{bass}"):
        words = _element("direction-type", {"words": text})
        return _element("direction", words, offset, placement="above")

    def note(place: str, name: str) -> Element:
        alter = name.count("#") - name.count("b")
        # Programs show a natural sign for 0.
        shown = {f"{place}-step": name[0], f"{place}-alter": alter if name[1:] else None}
        return _element(place, shown)

    kinds = {short: kind for kind, short in MUSICXML_KINDS.items()}
    named = {"kind": "none" if is_no_chord else kinds[kind]}
    content = [note("root", root), named, note("bass", bass) if bass else None]
    for sign, alterations, value in re.findall(r"(\*?)([#b]*)(\d+)", degrees):
        alter = alterations.count("#") - alterations.count("b")
        kind = "subtract" if sign else "add"
        degree = {"degree-value": value, "degree-alter": alter, "degree-type": kind}
        content.append(_element("degree", degree))
    return _element("harmony", *content, offset, placement="above")


def _chords(notes: Notes, ticks: Ids, bars: list[Bar], unit: int) -> list[Chord]:
    """Return the notes of a part, those of one onset and release together, by onset and height."""
    begins = sorted({*notes.onset.tolist()})
    ends = [full_release(a, b, begins, unit) for a, b in notes.rows("onset", "release")]
    notes = replace(notes, release=np.array(ends, dtype=np.int64))
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
    number: int,
    bars: list[Bar],
    staves: list[list[Chord]],
    has_drums: bool,
    keys: dict[int, Key],
    said: dict[int, list[Element]],
) -> Element:
    """Return the measures of a part; keys, said: of `_frame`."""
    voices = [[by_bar(voice, bars) for voice in voices_of(chords)] for chords in staves]
    part, key, meter = _element("part", id=f"P{number + 1}"), (0, False), (0, 0)
    for index, bar in enumerate(bars):
        attributes = _element("attributes", {"divisions": None if index else DIVISIONS})
        if index in keys:
            key = keys[index]
            shown = {"fifths": key[0], "mode": "minor" if key[1] else "major"}
            attributes.append(_element("key", shown))
        if bar.meter != meter:
            meter = bar.meter
            attributes.append(_element("time", {"beats": meter[0], "beat-type": meter[1]}))
        if not index:
            attributes.append(_element("staves", len(staves)))
            for place, chords in enumerate(staves, start=1):
                attributes.append(_element("clef", _clef(chords, has_drums), number=place))
        measure = _element("measure", *[attributes] * bool(len(attributes)), number=bar.number)
        measure.extend(said.get(index, ()))
        if bar.length != Fraction(4 * meter[0], meter[1]):
            measure.set("implicit", "yes")
        back = _element("backup", {"duration": _units(bar.length)})
        for staff, own in enumerate(voices):
            for notes in _staff([voice[index] for voice in own], bar, number, staff, key):
                measure.extend([*[back] * (measure.find("note") is not None), *notes])
        part.append(measure)
    return part


def _clef(chords: list[Chord], has_drums: bool) -> dict[str, Any]:
    """Return the sign and line of a clef, by the median pitch."""
    if has_drums:
        return {"sign": "percussion", "line": 3}
    pitches = sorted(note.pitch for chord in chords for note in chord.notes) or [MIDDLE_C]
    is_low = pitches[len(pitches) // 2] < MIDDLE_C - 2
    return {"sign": "F", "line": 4} if is_low else {"sign": "G", "line": 2}


def _staff(
    voices: list[list[Chord]], bar: Bar, part: int, staff: int, key: Key
) -> Iterator[list[Element]]:
    """Yield the notes and rests of each voice of a staff in a measure."""
    unit = Fraction(4, bar.meter[1])
    span = Span(bar.start - bar.missing, unit, bar.meter[0])
    times = bar.start, bar.start + bar.length
    # Some programs read the rest of a whole measure in the length of the meter.
    is_whole = bar.length == bar.meter[0] * unit
    written = [
        divide(segments(own, *times), span) if own or not (place or is_whole) else []
        for place, own in enumerate(voices)
    ]
    signs = _accidentals([value for values in written for value in values], key)
    for place, values in enumerate(written):
        voice = MAX_VOICES * staff + place + 1, staff + 1
        if values:
            yield [note for value in values for note in _notes(value, part, voice, key, signs)]
        elif place == 0:
            where = {"duration": _units(bar.length), "voice": voice[0], "staff": voice[1]}
            yield [_element("note", _element("rest", measure="yes"), where)]


def _accidentals(values: list[Value], key: Key) -> dict[tuple[Fraction, int], str]:
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
    voice: tuple[int, int],
    key: Key,
    signs: dict[tuple[Fraction, int], str],
) -> Iterator[Element]:
    """Yield a rest, or the notes of a chord; voice: its number and that of its staff."""
    sounding = sorted((note, chord) for chord in value.chords for note in chord.notes)
    (actual, normal), (name, is_dotted) = value.ratio, value.shape
    counts = {"actual-notes": actual, "normal-notes": normal}
    for place, (note, chord) in enumerate(sounding or [(None, None)]):
        kind, shown, ties, head, player = "rest", dict[str, Any](), list[str](), None, None
        if note is not None and chord is not None:
            player = _element("instrument", id=_instrument(part, note.program, note.pitch))
            ties = ["stop"] * (chord.onset < value.start) + ["start"] * (chord.release > value.stop)
            if note.program == DRUMS:
                step, octave, head = DRUM_PLACES.get(note.pitch, ("E", 4, "normal"))
                kind, shown = "unpitched", {"display-step": step, "display-octave": octave}
            else:
                step, alter, octave = _spelling(note.pitch, *key)
                kind, shown = "pitch", {"step": step, "alter": alter or None, "octave": octave}
        brackets = [value.bracket] * (bool(value.bracket) and not place)
        notations = [_element("tied", type=tie) for tie in ties]
        notations += [_element("tuplet", type=bracket, number=1) for bracket in brackets]
        element = _element(
            "note",
            {"chord": "" if place else None},
            _element(kind, shown),
            {"duration": _units(value.stop) - _units(value.start)},
            *(_element("tie", type=tie) for tie in ties),
            player,
            {"voice": voice[0], "type": name, "dot": "" if is_dotted else None},
            {
                "accidental": signs.get((value.start, note.pitch))
                if kind == "pitch" and note
                else None
            },
            _element("time-modification", counts) if actual != normal else None,
            {"notehead": head, "staff": voice[1]},
            _element("notations", *notations) if notations else None,
        )
        if note is not None and note.velocity != VELOCITY:  # in percent of forte
            element.set("dynamics", f"{100 * note.velocity / FORTE:.2f}")
        yield element
