"""MusicXML: what is read of a score, and scores that are written and read again."""

from __future__ import annotations

import io
import sys
import zipfile
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest
from pretty import midi_bytes

from triptych.domains.music.frame import cut, transpose
from triptych.domains.music.midi import parse_midi, read_midi
from triptych.domains.music.musicxml import parse_musicxml
from triptych.domains.music.musicxml_writing import musicxml_bytes
from triptych.domains.music.notation import Chord, Note, Span, divide, segments
from triptych.domains.music.notes import DRUMS, Notes, Part, Score
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.errors import UserError

TPQ = 480


def note(step="C", octave=4, duration=2, extra="", before="", attributes=""):
    pitch = f"<pitch><step>{step}</step><octave>{octave}</octave></pitch>"
    return f"<note {attributes}>{before}{pitch}<duration>{duration}</duration>{extra}</note>"


def attributes(extra="", divisions=2):
    return f"<attributes><divisions>{divisions}</divisions>{extra}</attributes>"


def document(*measures, entry="<part-name>Flute</part-name>", root="score-partwise"):
    inside = "".join(f'<measure number="{n}">{m}</measure>' for n, m in enumerate(measures, 1))
    listed = f'<part-list><score-part id="P1">{entry}</score-part></part-list>'
    return f'<{root}>{listed}<part id="P1">{inside}</part></{root}>'


def read(*measures, **more):
    return parse_musicxml(document(*measures, **more).encode(), name="a")


def quarters(score, *columns):
    table = {"onset": score.notes.onset / score.ticks_per_quarter,
             "release": score.notes.release / score.ticks_per_quarter}  # fmt: skip
    return [*zip(*(table.get(name, getattr(score.notes, name)).tolist() for name in columns),
                 strict=True)]  # fmt: skip


def at(score, rows):
    return [(tick / score.ticks_per_quarter, *rest) for tick, *rest in rows]


def test_an_archive_names_its_document_and_letters_have_any_size_and_encoding():
    """The document has another ending than .xml; the first entries are others."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("mimetype", "application/vnd.recordare.musicxml")
        archive.writestr("other.xml", "<other/>")
        archive.writestr("SCORE.XML", document(attributes() + note("E")).encode("utf-16"))
        archive.writestr(
            "META-INF/container.xml",
            '<container><rootfiles><rootfile full-path="SCORE.XML"/></rootfiles></container>',
        )
    assert parse_musicxml(content.getvalue(), name="a").notes.pitch.tolist() == [64]
    accents = document(attributes() + note(), entry="<part-name>Flöte</part-name>")
    entity = b"<!DOCTYPE score-partwise SYSTEM 'a.dtd'>" + accents.replace("ö", "&ouml;").encode()
    declared = b'<?xml version="1.0" encoding="UTF-8"?>' + accents.encode("cp1252")
    spaced = accents.replace("<score-partwise", '<score-partwise xmlns="x"').encode()
    for text in (entity, accents.encode(), declared, accents.encode("utf-16"), spaced):
        assert parse_musicxml(text, name="a").parts[0].name == "Flöte"


def test_an_odd_note_costs_only_itself_and_is_named():
    odd = [
        note("H"), note(octave="x"), note(octave=99),
        note(duration="two"),
        "<note><grace/><pitch><step>A</step><octave>4</octave></pitch></note>",
        "<note><cue/><pitch><step>A</step><octave>4</octave></pitch><duration>2</duration></note>",
        note("G"),
    ]  # fmt: skip
    score = read(attributes() + "".join(odd), attributes("", divisions=0) + note("E"))
    assert quarters(score, "pitch", "onset", "release") == [
        (67, 4, 5), (64, 5, 6)
    ]  # fmt: skip
    assert [text.partition(": ")[2] for text in score.left_out] == [
        "a note with the step 'H'",
        "a note with invalid literal for int() with base 10: 'x'",
        "a note with MIDI pitch 1200",
        "a note with Invalid literal for Fraction: 'two'",
        "a grace note",
        "a cue note",
        "a divisions with 0 units in a quarter",
    ]
    assert score.left_out[0].startswith("measure 1 of Flute")


def test_a_document_that_is_cut_off_gives_its_measures():
    text = document(attributes() + note("C"), note("D"), note("E"))
    score = parse_musicxml(text[: text.index("<step>E")].encode(), name="a")
    assert score.notes.pitch.tolist() == [60, 62]
    assert "damage in the document" in score.left_out[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a MusicXML file that can be read .*no element found"),
        (b"<html><p/></html>", "<html>"),
        (document(attributes() + note("H")).encode(), "holds no notes; measure 1"),
    ],
)
def test_what_is_no_score_is_told(content, message):
    with pytest.raises(UserError, match=message):
        parse_musicxml(content, name="a")


def test_meters_of_all_kinds():
    def meter(*pairs):
        inside = "".join(f"<beats>{a}</beats><beat-type>{b}</beat-type>" for a, b in pairs)
        return attributes(f"<time>{inside}</time>", divisions=4)

    free = attributes("<time><senza-misura/></time>", divisions=4)
    score = read(
        meter(("3+2", 8)) + note(duration=10), meter((3, 8), (2, 4)) + note(duration=14),
        free + note(duration=28), meter((4, 4)) + note(duration=16), note(duration=1),
        note(duration=16),
    )  # fmt: skip
    assert at(score, score.time_signatures) == [
        (0, 5, 8), (2.5, 7, 8), (6, 7, 4), (13, 4, 4), (17.25, 4, 4)
    ]  # fmt: skip
    bars = (score.bars() / score.ticks_per_quarter).tolist()
    assert bars == [0, 2.5, 6, 13, 17, 17.25, 21.25]


def test_keys_and_chords_sound_as_the_instrument_does():
    """A clarinet in B flat is written in D minor and sounds in C minor."""

    def key(fifths, mode="major"):
        return f"<key><fifths>{fifths}</fifths><mode>{mode}</mode></key>"

    down = "<transpose><diatonic>-1</diatonic><chromatic>-2</chromatic></transpose>"

    def chord(root, kind, bass="", alter=0, more="", offset=0):
        low = f"<bass><bass-step>{bass}</bass-step></bass>" if bass else ""
        root = f"<root><root-step>{root}</root-step><root-alter>{alter}</root-alter></root>"
        return f"<harmony>{root}<kind>{kind}</kind>{low}{more}<offset>{offset}</offset></harmony>"

    flat_nine = (
        "<degree><degree-value>9</degree-value><degree-alter>-1</degree-alter>"
        "<degree-type>add</degree-type></degree>"
    )
    score = read(
        attributes(key(-1, "minor") + down) + chord("D", "minor") + chord("A", "dominant",
        "C", offset=4, more=flat_nine) + note(duration=8),
        attributes(key(-1, "minor")) + chord("F", "major", alter=1) + note(duration=8),
        attributes(key(9)) + chord("C", "none") + chord("C", "Tristan", offset=2)
        + note(duration=8),
    )  # fmt: skip
    assert at(score, score.key_signatures) == [(0, -3, True), (8, -5, False)]
    assert at(score, score.chords) == [
        (0, "C:min"), (2, "G:7(b9)/Bb"), (4, "E:maj"), (8, "N")
    ]  # fmt: skip
    assert score.left_out == ["measure 3 of Flute: a harmony with kind Tristan"]


def test_tempos_that_are_played_and_shown():
    def mark(unit, number, dot="", sound="", offset=""):
        shown = f"<beat-unit>{unit}</beat-unit>{dot}<per-minute>{number}</per-minute>"
        shown = f"<direction-type><metronome>{shown}</metronome></direction-type>"
        return f"<direction>{shown}{offset}{sound}</direction>"

    score = read(
        attributes() + mark("eighth", "c. 120", "<beat-unit-dot/>") + note(duration=8),
        mark("half", 99, sound='<sound tempo="60.5"/>') + note(duration=8),
        mark("quarter", 0) + mark("quarter", 80, offset="<offset>4</offset>") + note(duration=8),
    )
    tempos = [(tick, 60e6 / tempo) for tick, tempo in at(score, score.tempos)]
    assert tempos == [(0, pytest.approx(90)), (4, pytest.approx(60.5)), (10, 80)]
    assert len(score.left_out) == 1


def test_programs_drums_and_loudness():
    entry = (
        "<part-name>Band</part-name>"
        '<midi-instrument id="a"><midi-channel>1</midi-channel><midi-program>57</midi-program>'
        '</midi-instrument><midi-instrument id="b"><midi-channel>10</midi-channel>'
        "<midi-unpitched>43</midi-unpitched></midi-instrument>"
        '<midi-instrument id="c"><midi-program>200</midi-program></midi-instrument>'
    )
    hit = "<note><unpitched/><duration>2</duration>{}</note>"
    score = read(
        attributes() + note(attributes='dynamics="100"') + hit.format('<instrument id="b"/>')
        + hit.format(""),
        entry=entry,
    )  # fmt: skip
    assert score.parts == [Part("Band", False), Part("Band", True)]
    columns = ("part", "program", "pitch", "velocity")
    assert quarters(score, *columns) == [(0, 56, 60, 90), (1, DRUMS, 42, 80), (1, DRUMS, 38, 80)]
    assert len(score.left_out) == 1


def score_of(*rows, parts=("Tune",), meters=(), last=None, **more):
    """A score of rows (pitch, onset, release, part, program), times in quarters."""
    notes = Notes.of(
        (pitch, round(onset * TPQ), round(release * TPQ), 80, *rest)
        for pitch, onset, release, *rest in rows
    ).sorted("part", "onset", "release", "pitch")
    end = round(last * TPQ) if last else int(notes.release.max())
    times = [(round(time * TPQ), *meter) for time, *meter in meters]
    drums = {part for part, program in notes.rows("part", "program") if program == DRUMS}
    listed = [Part(name, number in drums) for number, name in enumerate(parts)]
    return Score("a", listed, notes, TPQ, end, [], times, **more)


def written(score):
    content = musicxml_bytes(score)
    root = ElementTree.fromstring(content)
    for part in root.findall("part"):
        lengths = np.diff(score.bars()).tolist()
        for measure, length in zip(part, lengths, strict=True):
            assert_is_full(measure, Fraction(length, TPQ) * 10_080)
    return root, parse_musicxml(content, name="a")


def assert_is_full(measure, length):
    """Every voice fills its measure, and no note is longer or shorter than its note value."""
    now = 0
    values = {"breve": 8, "whole": 4, "half": 2, "quarter": 1, "eighth": Fraction(1, 2)}
    values |= {f"{2**n}{'nd' if n == 5 else 'th'}": Fraction(4, 2**n) for n in range(4, 9)}
    for element in measure:
        if element.tag == "backup":
            assert now == length
            now = 0
        elif element.tag == "note" and element.find("chord") is None:
            duration = int(element.findtext("duration"))
            now += duration
            if element.find("type") is not None:
                value = values[element.findtext("type")] * 10_080
                value *= Fraction(3, 2) if element.find("dot") is not None else 1
                normal = int(element.findtext("time-modification/normal-notes", "1"))
                actual = int(element.findtext("time-modification/actual-notes", "1"))
                assert duration == value * normal / actual
    assert now == length


def rows_of(score):
    return quarters(score, "pitch", "onset", "release", "part", "program")


PIECES = {
    "a pickup, a tie over the bar and syncopes": (
        [(67, 0, 1), (72, 1, 1.5), (74, 1.5, 2.5), (76, 2.5, 6), (77, 6, 9)],
        [(0, 1, 4), (1, 4, 4)],
    ),
    "triplets of eighths, quarters and sixteenths beside sixteenths": (
        [(60 + n, n / 3, (n + 1) / 3) for n in range(3)]
        + [(60 + n, 1 + 2 * n / 3, 1 + 2 * (n + 1) / 3) for n in range(3)]
        + [(70 + n, 3 + n / 6, 3 + (n + 1) / 6) for n in range(3)] + [(60, 3.5, 4), (62, 4, 4.25)],
        [],
    ),
    "quintuplets and septuplets": (
        [(60 + n, n / 5, (n + 1) / 5) for n in range(5)]
        + [(60 + n, 1 + n / 7, 1 + (n + 1) / 7) for n in range(7)],
        [],
    ),
    "voices that overlap": (
        [(76, 0, 1), (74, 1, 4), (64, 0, 2), (62, 2, 3), (55, 0, 4)], [],
    ),
    "six voices": ([(60 + 2 * n, n / 2, 6 - n / 4) for n in range(6)], [(0, 3, 4)]),
    "6/8, 5/4, 7/8 and 12/16": (
        [(60, 0, 1), (62, 1, 3), (64, 3, 8), (65, 8, 11.5), (67, 11.75, 14.5)],
        [(0, 6, 8), (3, 5, 4), (8, 7, 8), (11.5, 12, 16)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PIECES)
def test_a_written_score_comes_back(name):
    rows, meters = PIECES[name]
    score = score_of(*rows, meters=meters)
    _, back = written(score)
    for mine, theirs in zip(rows_of(score), rows_of(back), strict=True):
        assert theirs == pytest.approx(mine, abs=1 / TPQ)
    assert np.allclose(back.bars() / 5040, score.bars() / TPQ)


def test_the_frame_of_a_score_comes_back():
    score = score_of(
        (62, 0, 3), (66, 3, 6), (70, 6, 9), meters=[(0, 3, 4)], parts=["Flöte & <co>"],
        key_signatures=[(0, 2, False), (6 * TPQ, -2, True)],
        chords=[(0, "D:maj"), (TPQ, "A:7(b9,*5)/C#"), (2 * TPQ, "N"), (3 * TPQ, "Bbm7"),
                (4 * TPQ, "Verse")],
    )  # fmt: skip
    score = Score(**{**vars(score), "tempos": [(0, 588_235), (4 * TPQ, 1_000_000)]})
    root, back = written(score)
    assert at(back, back.tempos) == at(score, score.tempos)
    assert at(back, back.key_signatures) == at(score, score.key_signatures)
    assert at(back, back.chords) == [
        (0, "D:maj"), (1, "A:7(b9,*5)/C#"), (2, "N"), (3, "Bb:min7")
    ]  # fmt: skip
    assert root.findtext(".//words") == "Verse"
    assert back.parts == score.parts
    assert [e.findtext("step") + e.findtext("alter", "") for e in root.iter("pitch")] == [
        "D", "F1", "B-1"
    ]  # fmt: skip
    assert root.find(".//accidental") is None  # all of them are notes of the key


@pytest.mark.parametrize(
    "title",
    ["<work><work-title>Lied </work-title></work>", "<movement-title>Lied</movement-title>"],
)
def test_a_title_and_creators_come_back(title):
    creators = "".join(
        f"<creator{kind}>{name}</creator>"
        for kind, name in ((' type="lyricist"', "Heine"), ("", "R. &amp; C. Schumann"), ("", " "))
    )
    about = f"{title}<identification>{creators}</identification><part-list>"
    score = parse_musicxml(
        document(attributes() + note()).replace("<part-list>", about).encode(), name="a"
    )
    expected = [("title", "Lied"), ("lyricist", "Heine"), ("composer", "R. & C. Schumann")]
    assert score.credits == expected
    content = musicxml_bytes(transpose(cut(score, score.last_tick), 2))
    assert parse_musicxml(content, name="a").credits == expected
    assert [child.tag for child in ElementTree.fromstring(content)] == [
        "work",
        "identification",
        "part-list",
        "part",
    ]


def test_a_pickup_is_measure_0_and_an_accidental_holds_for_its_measure():
    rows = [(67, 0, 1), (66, 1, 2), (66, 2, 3), (65, 3, 4), (66, 4, 5), (66, 5, 6)]
    root, _ = written(score_of(*rows, meters=[(0, 1, 4), (1, 4, 4)], last=9))
    measures = root.findall("part/measure")
    assert [(m.get("number"), m.get("implicit")) for m in measures] == [
        ("0", "yes"), ("1", None), ("2", None)
    ]  # fmt: skip
    assert [n.findtext("accidental") for n in root.iter("note") if n.find("pitch") is not None] == [
        None, "sharp", None, "natural", "sharp", "sharp"
    ]  # fmt: skip
    assert root.findtext(".//beats") == "4"


def test_drums_and_two_staves():
    rows = [(36, 0, 0.1, 1, DRUMS), (42, 0, 0.1, 1, DRUMS), (38, 2.5, 2.6, 1, DRUMS)]
    rows += [(40, 0, 4, 0, 0), (72, 0, 1, 0, 0), (76, 1, 4, 0, 0)]
    root, back = written(score_of(*rows, parts=("Piano", "Kit")))
    assert [c.findtext("sign") for c in root.iter("clef")] == ["G", "F", "percussion"]
    staves = {n.findtext("pitch/octave"): n.findtext("staff") for n in root.iter("note")}
    assert (staves["2"], staves["5"]) == ("2", "1")
    assert rows_of(back) == [
        (72, 0, 1, 0, 0), (40, 0, 4, 0, 0), (76, 1, 4, 0, 0),
        (36, 0, 1, 1, DRUMS), (42, 0, 1, 1, DRUMS), (38, 2.5, 3, 1, DRUMS),
    ]  # fmt: skip
    assert [part.is_drum for part in back.parts] == [False, True]


def test_a_performance_moves_to_a_grid_and_loses_no_note():
    random = np.random.default_rng(0)
    onsets = np.sort(random.uniform(0, 30, 200))
    score = score_of(*((40 + n % 50, onset, onset + random.uniform(0.01, 2))
                       for n, onset in enumerate(onsets)))  # fmt: skip
    _, back = written(score)
    assert len(back.notes) == 200
    before = score.notes.sorted("pitch", "onset").onset / TPQ
    after = back.notes.sorted("pitch", "onset").onset / 5040
    assert np.abs(before - after).max() <= 0.07


@pytest.mark.parametrize("played", [0.9, 0.95, 0.95 - 1 / TPQ, 0.98])
def test_notes_that_are_played_shorter_are_written_in_full(played):
    """As most programs write MIDI files: each note ends a little before the next one or a rest."""
    full = [
        (67, 0, 1), (67, 1, 2), (69, 2, 2.5), (71, 2.5, 4), (72, 4, 6), (72, 7, 7.25),
        (74, 7.25, 8), *[(60 + n, 8 + n / 3, 8 + (n + 1) / 3) for n in range(6)], (60, 12, 15.5),
    ]  # fmt: skip
    short = [(pitch, a, a + (b - a) * played) for pitch, a, b in full]
    _, back = written(score_of(*short, last=16))
    assert np.allclose(quarters(back, "pitch", "onset", "release"), full, atol=0.001)


def test_a_short_bar_without_notes_has_rests_of_its_length():
    """Some programs read the rest of a whole measure in the length of the meter."""
    rows = [(67, 0, 1, 0), (69, 1, 7, 0), (48, 4, 7, 1)]
    root, _ = written(score_of(*rows, parts=("High", "Low"), meters=[(0, 1, 4), (1, 3, 4)]))
    pickup, bar, _ = root.findall("part")[1]
    assert pickup.find("note/rest").attrib == {}
    assert pickup.findtext("note/type") == "quarter"
    assert bar.find("note/rest").attrib == {"measure": "yes"}


def test_a_bar_may_end_within_a_triplet():
    """A meter that begins 2/3 of a quarter after the bar line of the one before."""
    rows = [(60 + n, n / 3, (n + 1) / 3) for n in range(14)]
    score = score_of(*rows, meters=[(0, 4, 4), (2 / 3, 2, 4)])
    back = parse_musicxml(musicxml_bytes(score), name="a")
    assert quarters(back, "pitch") == quarters(score, "pitch")
    assert np.allclose(back.notes.onset / 5040, score.notes.onset / TPQ, atol=0.01)


def test_a_piece_without_notes_is_a_score():
    assert b"score-partwise" in musicxml_bytes(Score("a", [], Notes.of([]), TPQ, 0, [], []))
    score = Score("a", [Part("Kit", is_drum=True)], Notes.of([]), TPQ, 3 * TPQ, [], [(0, 3, 4)])
    assert len(ElementTree.fromstring(musicxml_bytes(score)).findall("part/measure")) == 1


def test_note_values_show_the_beats():
    """Starts and written lengths of a melody in 4/4: what crosses the middle is tied."""

    def values(*spans, meter=4, unit=1):
        spans = [tuple(map(Fraction, span)) for span in spans]
        chords = [Chord(a, b, [Note(60, 80, 0)]) for a, b in spans]
        end = Fraction(meter * Fraction(unit))
        cut = divide(segments(chords, Fraction(0), end), Span(Fraction(0), Fraction(unit), meter))
        return [float(value.written) * (1 if value.chords else -1) for value in cut]

    assert values((0, 0.5), (0.5, 1.5), (1.5, 2.5), (2.5, 4)) == [0.5, 1, 0.5, 0.5, 1.5]
    assert values((0, 1), (1, 3), (3, 4)) == [1, 2, 1]
    assert values((3, 4)) == [-2, -1, 1]
    assert values((0, 1), (1, 3), meter=6, unit=0.5) == [1, 0.5, 1.5]
    assert values((0, 5), meter=5) == [4, 1]
    assert values((0, 3.5), meter=7, unit=0.5) == [3, 0.5]


TUNES = 'X:1\nM:3/4\nL:1/4\nK:G\n"G"G A B|c3|\n\nX:2\nK:C\nC|\n'
HUMDRUM = "**kern\n*M3/4\n*k[f#]\n=1\n4g\n4a\n4b\n=2\n2.cc\n==\n*-\n"


@pytest.mark.parametrize(("name", "text"), [("a.abc", TUNES), ("a.krn", HUMDRUM)])
def test_other_notations_are_converted(tmp_path, name, text):
    pytest.importorskip("music21")
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    score = read_midi(path)
    assert quarters(score, "pitch", "onset", "release") == [
        (67, 0, 1), (69, 1, 2), (71, 2, 3), (72, 3, 6)
    ]  # fmt: skip
    assert at(score, score.time_signatures) == [(0, 3, 4)]
    assert at(score, score.key_signatures) == [(0, 1, False)]
    assert at(score, score.chords) == ([(0, "G:maj")] if name == "a.abc" else [])
    further = ["all tunes but the first, 2 in all"] if name == "a.abc" else []
    assert score.left_out == further


def test_short_measures_of_a_tune_stay_short():
    """A pickup, and a phrase that ends within a bar."""
    pytest.importorskip("music21")
    tune = b"X:1\nM:4/4\nL:1/4\nK:C\nG|C D E :|: G|C4|\n"
    score = parse_midi(tune, name="a.abc")
    assert quarters(score, "pitch", "onset", "release") == [
        (67, 0, 1), (60, 1, 2), (62, 2, 3), (64, 3, 4), (67, 4, 5), (60, 5, 9)
    ]  # fmt: skip
    free = parse_midi(b"X:1\nL:1/4\nK:C\nC D E F G\n", name="a.abc")
    assert free.notes.pitch.tolist() == [60, 62, 64, 65, 67]


def test_a_missing_package_and_a_damaged_tune_are_told(monkeypatch):
    with monkeypatch.context() as patch:
        for module in ("music21", "music21.converter"):
            patch.setitem(sys.modules, module, None)
        with pytest.raises(UserError, match=r"a\.abc.* pip install 'triptych\[scores\]'"):
            parse_midi(TUNES.encode(), name="a.abc")
    pytest.importorskip("music21")
    with pytest.raises(UserError, match=r"a\.krn"):
        parse_midi(b"**kern\n4g\t4a\n*-\n", name="a.krn")


def test_files_of_scores_are_known_by_their_suffix(tmp_path, make_piano):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("META-INF/container.xml", "<container/>")
        file.writestr("a.xml", document(attributes() + note()))
    text = document(attributes() + note())
    contents = [archive.getvalue(), text.encode(), text.encode("utf-16"),
                b"\xef\xbb\xbf\n" + text.encode()]  # fmt: skip
    for content in contents:
        assert parse_midi(content, name="download.XML").notes.pitch.tolist() == [60]
    midi = midi_bytes(make_piano([(62, 0, 1, 80)]))
    assert parse_midi(midi, name="named.xml").notes.pitch.tolist() == [62]
    with pytest.raises(UserError, match="download"):
        parse_midi(contents[1], name="download")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "A.MUSICXML").write_bytes(contents[1])
    (folder / "b.mxl").write_bytes(contents[0])
    pieces = MidiFolder(str(folder)).load("all", EventTokenizer())
    assert [piece.name for piece in pieces] == ["A.MUSICXML", "b.mxl"]


@pytest.mark.parametrize("kinds", [("start", "stop"), ("start", ""), ("", "stop")])
def test_one_end_of_a_tie_is_enough(kinds):
    first, second = (f'<tie type="{kind}"/>' * bool(kind) for kind in kinds)
    score = read(
        attributes() + note(duration=8, extra=first),
        note(duration=4, extra=second) + note(duration=4),
        entry='<part-name>A</part-name><midi-instrument id="i"><midi-program>0</midi-program>'
        "</midi-instrument>",
    )
    assert quarters(score, "pitch", "onset", "release", "program") == [
        (60, 0, 6, 0), (60, 6, 8, 0)
    ]  # fmt: skip


def test_bars_of_less_than_a_tick_end():
    """Bars of 1/128 with 8 ticks in a quarter last a tick, four times as long."""
    notes = Notes.of([(60, 0, 5, 80), (62, 5, 9, 80)])
    score = Score("a", [Part("A", is_drum=False)], notes, 8, 9, [], [(0, 1, 128)])
    back = parse_musicxml(musicxml_bytes(score), name="a")
    assert quarters(back, "pitch", "onset") == [(60, 0), (62, 5 / 8)]
