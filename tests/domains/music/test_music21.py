"""The recipes of scores in music21, and what they read."""

import gzip
import importlib.util
import json
import sys
import zipfile

import numpy as np
import pytest

from triptych.domains.music.musicxml import parse_musicxml
from triptych.domains.music.notes import SILENT
from triptych.domains.music.sources.base import SPLITS
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.domains.music.tokenizers.attacks import AttackTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.errors import UserError
from triptych.tools import recipes

bach, quartets = recipes.load("bach"), recipes.load("quartets")
read_chorale, read_ensemble, corpus_files = (
    bach.read_chorale,
    quartets.read_ensemble,
    bach.corpus_files,
)
line_runs, PHRASE = bach.line_runs, bach.PHRASE

STRINGS = ("violin", "violin", "viola", "cello")
needs_music21 = pytest.mark.skipif(
    importlib.util.find_spec("music21") is None, reason="music21 is not installed"
)


def attributes(divisions=2, extra=""):
    return f"<attributes><divisions>{divisions}</divisions>{extra}</attributes>"


def note(step, octave, duration, *, alter="", chord="", grace="", tie=""):
    alter = f"<alter>{alter}</alter>" if alter else ""
    length = "" if grace else f"<duration>{duration}</duration>"
    return (
        f"<note>{grace}{chord}<pitch><step>{step}</step>{alter}<octave>{octave}</octave></pitch>"
        f"{length}{tie}</note>"
    )


def rest(duration):
    return f"<note><rest/><duration>{duration}</duration></note>"


def write(path, soprano, *, parts=4):
    """A score whose soprano is given as measures, the other parts holding C3."""
    other = "".join(
        f"<measure>{attributes() if n == 0 else ''}{note('C', 3, 8)}</measure>"
        for n in range(len(soprano))
    )
    measures = "".join(f"<measure>{m}</measure>" for m in soprano)
    body = f"<part>{measures}</part>" + f"<part>{other}</part>" * (parts - 1)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/container.xml", "<container/>")
        archive.writestr("a.musicxml", f"<score-partwise>{body}</score-partwise>")
    return path


TIED, CHORD, GRACE = '<tie type="start"/>', "<chord/>", "<grace/>"
BACK, FORTH = "<backup><duration>8</duration></backup>", "<forward><duration>2</duration></forward>"
LOUD = '<direction><sound dynamics="90"/></direction><sound/>'
DOWN = "<transpose><chromatic>-2</chromatic><octave-change>-1</octave-change></transpose>"
SOPRANOS = {
    "lengths": (
        [attributes() + note("C", 5, 2) + note("D", 5, 1) + note("E", 5, 1) + note("F", 4, 4)],
        [72] * 4 + [74] * 2 + [76] * 2 + [65] * 8,
    ),
    "accidentals and rests": (
        [attributes() + note("F", 4, 2, alter="1") + note("B", 4, 2, alter="-1") + rest(4)],
        [66] * 4 + [70] * 4 + [SILENT] * 8,
    ),
    "a tie is one held pitch": (
        [attributes() + note("C", 5, 6) + note("D", 5, 2, tie=TIED), note("D", 5, 8)],
        [72] * 12 + [74] * 20,
    ),
    "a second voice fills only what is silent": (
        [attributes() + note("C", 5, 4) + rest(4) + BACK + note("A", 4, 6) + FORTH],
        [72] * 8 + [69] * 4 + [SILENT] * 4,
    ),
    "a direction without a tempo": ([attributes() + LOUD + note("C", 5, 8)], [72] * 16),
    "first note of a chord, no grace notes": (
        [attributes() + note("B", 4, 0, grace=GRACE) + note("C", 5, 4)
         + note("E", 5, 4, chord=CHORD) + note("D", 5, 4)],
        [72] * 8 + [74] * 8,
    ),
    "a transposing part": ([attributes(extra=DOWN) + note("C", 5, 8)], [58] * 16),
    "a step holds what sounds at its start": (
        [attributes(8) + note("C", 5, 1) + note("D", 5, 1) + note("E", 5, 30)],
        [72] + [76] * 15,
    ),
    "an incomplete measure shifts no voice": (
        [attributes() + note("C", 5, 2), note("D", 5, 8)],
        [72] * 4 + [SILENT] * 12 + [74] * 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOPRANOS)
def test_measures_as_sixteenths(tmp_path, name):
    measures, expected = SOPRANOS[name]
    grid = read_chorale(write(tmp_path / "a.mxl", measures)).grid
    assert grid[:, 0].tolist() == expected


def test_a_score_tells_a_repeated_note_from_a_tied_one(tmp_path):
    """D5 twice, then tied over the bar; notes between two sixteenths are not heard."""
    stop = '<tie type="stop"/>'
    short = note("D", 5, 1) + note("D", 5, 1) + note("D", 5, 29) + note("D", 5, 1)
    tied = note("D", 5, 4) + note("D", 5, 4, tie=TIED)
    measures = [attributes() + tied, note("D", 5, 8, tie=stop), attributes(8) + short]
    path = write(tmp_path / "a.mxl", measures)
    chorale = read_chorale(path)
    assert np.flatnonzero(chorale.struck[:, 0]).tolist() == [0, 8, 32, 33]
    tokenizer = AttackTokenizer()
    ids = tokenizer.encode(tokenizer.content_of(chorale.grid, chorale.struck))
    assert np.flatnonzero(tokenizer.onsets(ids)[::4]).tolist() == [0, 8, 32, 33]


def test_pieces_of_the_held_out_jsb_splits_are_left_out_once(tmp_path, monkeypatch, caplog):
    random = np.random.default_rng(0)
    grids = [random.integers(50, 70, (60, 4)) for _ in range(4)]
    struck = np.ones((60, 4), dtype=bool)
    chorales = [bach.Chorale(f"b{n}", grid, struck) for n, grid in enumerate(grids)]
    monkeypatch.setattr(bach, "corpus_files", lambda composer: [])
    monkeypatch.setattr(bach, "read_all", lambda read, files: chorales)
    splits = {"train": [grids[0]], "valid": [grids[1] + 2], "test": [grids[2] - 1]}
    with gzip.open(tmp_path / "Jsb16thSeparated.json.gz", "wt") as file:
        json.dump({name: [grid.tolist() for grid in part] for name, part in splits.items()}, file)
    files = dict(bach.main(bach.Options(leave_out=str(tmp_path))))
    assert [*files] == ["b0.mid", "b3.mid", "splits.csv"]
    assert len(caplog.messages) == 1
    assert all(text in caplog.text for text in ("2 of 4", "b1, b2"))
    assert len(dict(bach.main(bach.Options()))) == 5
    with pytest.raises(UserError, match="does not exist"):
        list(bach.main(bach.Options(leave_out=str(tmp_path / "no"))))


def tune(seed, steps=200):
    line = 60 + np.random.default_rng(seed).integers(-3, 4, steps // 4).cumsum() % 14
    return np.stack([line.repeat(4), *[np.full(steps, 50)] * 3], axis=1)


def test_copies_and_other_settings_of_a_tune_are_one_group():
    first, second = tune(0), tune(1)
    transposed = np.where(first == SILENT, SILENT, first + 3)
    other_setting = first.copy()
    other_setting[:, 1:] = 47
    part = first[40:160]
    assert bach.find_tunes([first, second, transposed, other_setting, part]) == [0, 1, 0, 0, 0]


def test_two_tunes_are_two_groups():
    assert bach.find_tunes([tune(seed) for seed in range(30)]) == list(range(30))


def test_another_edition_is_found_in_any_key_and_another_harmonisation_is_not():
    random = np.random.default_rng(0)
    first, second = (random.integers(50, 70, (80, 4)) for _ in range(2))
    edition = first + 3
    edition[[5, 40], 1:] = 60
    repeated = np.concatenate([edition, edition[:30]])
    harmonised = second.copy()
    harmonised[:, 0] = first[:, 0]
    found = bach.in_another_edition([edition, repeated, harmonised, second], [first])
    assert found == [True, True, False, False]


def test_a_melody_has_a_run_from_each_interval_on():
    pitches = np.array([60, 60, 62, SILENT, 61, 64, 63, 67, 65, 66, 60, 69])
    intervals = [2, -1, 3, -1, 4, -2, 1, -6, 9]
    grid = np.stack([pitches] * 4, axis=1)
    assert line_runs(grid[:, 0]) == {tuple(intervals[:PHRASE]), tuple(intervals[1:])}
    assert line_runs(grid[:4, 0]) == {(2,)}


def test_a_score_with_its_meters_tempos_and_ties(tmp_path):
    """Two parts of other divisions; a pickup, a chord with a tie, a new meter, an empty measure."""
    stop, start, both = ('<tie type="stop"/>', '<tie type="start"/>', '<tie type="stop"/>' * 2)
    meter = "<time><beats>3</beats><beat-type>4</beat-type></time>"
    six = "<time><beats>6</beats><beat-type>8</beat-type></time>"
    up = "<transpose><octave-change>1</octave-change></transpose>"
    down = "<transpose><chromatic>-3</chromatic></transpose>"
    flute = [
        attributes(2, meter + up) + '<sound tempo="90"/>' + note("G", 4, 1),
        note("C", 4, 6, tie=start) + note("E", 4, 6, chord="<chord/>"),
        note("C", 4, 2, tie=both) + note("E", 4, 4),
        attributes(4, six) + note("C", 4, 12),
    ]
    horn = [
        attributes(1, down) + note("C", 4, "1/2"),
        note("C", 4, 2) + '<direction><sound tempo="60"/></direction>' + note("C", 4, 1, tie=stop),
    ]
    names = "".join(
        f'<score-part id="{i}"><part-name>{n}</part-name></score-part>'
        for i, n in enumerate(("flute", "horn"))
    )
    parts = (
        f'<part id="{i}">{"".join(f"<measure>{m}</measure>" for m in measures)}</part>'
        for i, measures in enumerate((flute, horn))
    )
    path = tmp_path / "a.xml"
    path.write_text(f"<s><part-list>{names}</part-list>{''.join(parts)}</s>", encoding="utf-8")
    score = parse_musicxml(path.read_bytes(), name="a")
    unit = score.ticks_per_quarter / 2
    rows = [
        (pitch, onset / unit, release / unit, part, program, velocity)
        for pitch, onset, release, part, program, velocity in score.notes.rows(
            "pitch", "onset", "release", "part", "program", "velocity"
        )
    ]
    assert rows == [
        (79, 0, 1, 0, 0, 80), (76, 1, 7, 0, 0, 80), (72, 1, 9, 0, 0, 80), (76, 9, 13, 0, 0, 80),
        (72, 13, 19, 0, 0, 80), (57, 0, 1, 1, 0, 80), (57, 1, 7, 1, 0, 80),
    ]  # fmt: skip
    assert [(part.name, part.is_drum) for part in score.parts] == [
        ("flute", False), ("horn", False)
    ]  # fmt: skip
    assert [(at / unit, tempo) for at, tempo in score.tempos] == [(0, 666_667), (5, 1_000_000)]
    meters = [(at / unit, *meter) for at, *meter in score.time_signatures]
    assert meters == [(0, 1, 8), (1, 3, 4), (13, 6, 8)]
    assert score.last_tick == 19 * unit


def test_each_measure_has_the_meter_of_its_length(tmp_path):
    """In quarters 4, 2 1/2, 3, 3/4 (no eighths, so no meter), 4; then 3/4, 3/4, 3+2/8, 3/4."""

    def meter(beats, unit):
        return f"<time><beats>{beats}</beats><beat-type>{unit}</beat-type></time>"

    units = [16, 10, 12, 3, 16, 12, 12, 10, 12]
    extras = {5: meter(3, 4), 7: meter("3+2", 8)}
    lines = [
        (attributes(4, extras.get(n, "")) if n in (0, *extras) else "") + note("C", 5, length)
        for n, length in enumerate(units)
    ]
    score = parse_musicxml(write(tmp_path / "a.mxl", lines, parts=1).read_bytes(), name="a")
    quarters = [(at / score.ticks_per_quarter, *two) for at, *two in score.time_signatures]
    assert quarters == [
        (0, 4, 4), (4, 5, 8), (6.5, 3, 4), (10.25, 4, 4), (14.25, 3, 4), (20.25, 5, 8),
        (22.75, 3, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_settings_of_a_tune_are_in_one_split(tmp_path, monkeypatch, share):
    """One melody in two keys, and three others; the rest of the corpus is another composer's."""
    random = np.random.default_rng(0)
    tunes = ["".join(note(x, 4, 1) for x in random.choice([*"CDEFGAB"], 40)) for _ in range(4)]
    lower = "<transpose><chromatic>-3</chromatic></transpose>"
    for number, tune in enumerate([tunes[0], *tunes]):
        line = attributes(4, lower if number == 1 else "") + tune
        write(tmp_path / f"b{number}.mxl", [line])
    monkeypatch.setattr(bach, "corpus_files", lambda composer: sorted(tmp_path.iterdir()))
    options = bach.Options(validation_share=share, test_share=0.0)
    _, *rows = dict(bach.main(options))["splits.csv"]
    found = dict(row.split(",") for row in rows)
    assert found == {f"b{n}.mid": options.split_of(f"b{n * (n > 1)}") for n in range(5)}
    assert ("validation" in found.values()) == (share > 0)
    assert "test" not in found.values()


def test_pieces_come_back_from_their_files(tmp_path, monkeypatch):
    """Repeated and held notes, a voice that rests at first, and a rest of all at the end."""
    notes = note("C", 5, 2) + note("C", 5, 2) + note("C", 5, 1) + note("D", 5, 1) + rest(2)
    path = write(tmp_path / "b.mxl", [attributes() + rest(4) + note("G", 4, 4), notes])
    monkeypatch.setattr(bach, "corpus_files", lambda composer: [path])
    recipes.make("bach", ["--out", str(tmp_path / "bach"), "--validation_share", "0"])
    chorale, tokenizer = read_chorale(path), AttackTokenizer()
    expected = tokenizer.content_of(chorale.grid, chorale.struck)
    for split in SPLITS:
        if bach.Options(validation_share=0.0).split_of("b") == split:
            (piece,) = MidiFolder(str(tmp_path / "bach")).load(split, tokenizer)
            assert np.array_equal(piece.content, expected)


@pytest.mark.parametrize("parts", [1, 3, 5])
def test_another_number_of_parts_is_no_chorale(tmp_path, parts):
    path = write(tmp_path / "a.mxl", [attributes() + note("C", 5, 8)], parts=parts)
    assert read_chorale(path) is None


def test_damage_is_told_by_name(tmp_path):
    path = tmp_path / "broken.mxl"
    path.write_bytes(b"no zip")
    with pytest.raises(UserError, match=r"broken\.mxl"):
        read_chorale(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.xml", "<score><part>")
    with pytest.raises(UserError, match=r"broken\.mxl"):
        read_chorale(path)


@needs_music21
def test_music21_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "music21", raising=False)
    assert read_chorale(corpus_files("bach")[1]).grid.shape[1] == 4
    assert "music21" not in sys.modules


def test_a_missing_music21_is_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="music21, which is not installed"):
        corpus_files("bach")


@needs_music21
def test_a_known_chorale():
    path = next(path for path in corpus_files("bach") if path.name == "bwv66.6.mxl")
    grid = read_chorale(path).grid
    # "Christ ist erstanden": an eighth pair leads to F sharp minor; C#5, B4, then A4, B4, C#5, E5.
    assert grid[:2, 0].tolist() == [73, 73]
    assert grid[2:4, 0].tolist() == [71, 71]
    assert grid[4:16:4, 0].tolist() == [69, 71, 73]
    assert grid[4].tolist() == [69, 66, 61, 54]


def test_parts_are_known_by_their_names(tmp_path):
    path = tmp_path / "a.xml"

    def score_of(*names):
        listed = "".join(
            f'<score-part id="{name}"><part-name>{name}</part-name></score-part>' for name in names
        )
        measure = f"<measure>{attributes()}{note('C', 4, 8)}</measure>"
        parts = "".join(f'<part id="{name}">{measure}</part>' for name in names)
        path.write_text(f"<s><part-list>{listed}</part-list>{parts}</s>")
        return read_ensemble(path)

    notes = score_of("Violino I.", "2nd Violin", "Violone e Organo").notes
    assert notes.program[notes.part.argsort()].tolist() == [40, 40, 42]
    assert score_of("Violin", "Cello") is None
    assert score_of("Violin I", "Violin II", "Voice") is None


@pytest.mark.slow
@needs_music21
def test_every_score_of_the_corpus_comes_back(instrument_roundtrip):
    """All notes, and most of them at their time: triplets and 32nds together fit no grid."""
    tokenizer, shifts = RemiTokenizer(STRINGS), []
    for score in quartets.all_ensembles():
        trip = instrument_roundtrip.round_trip(tokenizer, score)
        assert len(trip.shifts) == trip.before == trip.after, score.name
        assert max(trip.shifts) < 0.1, score.name
        shifts += trip.shifts
    assert sum(shift > instrument_roundtrip.EQUAL for shift in shifts) < 0.05 * len(shifts)


@pytest.mark.slow
@needs_music21
def test_works_are_split_whole():
    options = quartets.Options(validation_share=0.2, test_share=0.2)
    _, *rows = dict(quartets.main(options))["splits.csv"]
    assert len(rows) == 52
    split_of = {}
    for row in rows:
        name, split = row.split(",")
        work = "/".join(name.removesuffix(".mid").split("/")[:2])
        assert split_of.setdefault(work, split) == split
    assert {*split_of.values()} == {*SPLITS}


@pytest.mark.slow
@needs_music21
def test_chorales_are_split_by_tune(tmp_path):
    recipes.make("bach", ["--out", str(tmp_path / "bach")])
    source = MidiFolder(str(tmp_path / "bach"))
    pieces = {split: source.load(split, ChoraleTokenizer()) for split in SPLITS}
    assert sum(len(p) for p in pieces.values()) == 364
    assert len({piece.name for p in pieces.values() for piece in p}) == 364
    assert all(len(pieces[split]) >= 20 for split in SPLITS)
    for split in SPLITS:
        assert [p.name for p in pieces[split]] == sorted(p.name for p in pieces[split])
    runs = {split: [bach.line_runs(p.content[:, 0]) for p in pieces[split]] for split in SPLITS}
    for held_out in ("validation", "test"):
        for tune_held_out in runs[held_out]:
            for tune_seen in runs["train"]:
                shared = len(tune_held_out & tune_seen)
                assert shared < bach.MIN_SHARED * min(len(tune_held_out), len(tune_seen))
    # Two copies that music21 carries, note for note.
    where = {piece.name: split for split in SPLITS for piece in pieces[split]}
    assert where["bwv197.7-a.mid"] == where["bwv398.mid"]
    assert where["bwv18.5-lz.mid"] == where["bwv18.5-w.mid"]
