import importlib.util
import sys
import zipfile

import numpy as np
import pytest

from triptych.domains.music.notes import SILENT
from triptych.domains.music.sources.music21 import PHRASE, corpus_files, melody_runs, read_chorale
from triptych.errors import UserError

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
        archive.writestr("a.xml", f"<score-partwise>{body}</score-partwise>")
    return path


def soprano_of(tmp_path, *measures):
    grid = read_chorale(write(tmp_path / "a.mxl", list(measures))).content
    return grid[:, 0].tolist()


def test_notes_last_as_long_as_written(tmp_path):
    line = attributes() + note("C", 5, 2) + note("D", 5, 1) + note("E", 5, 1) + note("F", 4, 4)
    assert soprano_of(tmp_path, line) == [72] * 4 + [74] * 2 + [76] * 2 + [65] * 8


def test_accidentals_and_rests(tmp_path):
    line = attributes() + note("F", 4, 2, alter="1") + note("B", 4, 2, alter="-1") + rest(4)
    assert soprano_of(tmp_path, line) == [66] * 4 + [70] * 4 + [SILENT] * 8


def test_a_tie_is_one_held_pitch(tmp_path):
    line = attributes() + note("C", 5, 6) + note("D", 5, 2, tie='<tie type="start"/>')
    assert soprano_of(tmp_path, line, note("D", 5, 8)) == [72] * 12 + [74] * 20


def test_a_second_voice_fills_only_what_is_silent(tmp_path):
    line = (
        attributes() + note("C", 5, 4) + rest(4) + "<backup><duration>8</duration></backup>"
        + note("A", 4, 6) + "<forward><duration>2</duration></forward>"
    )  # fmt: skip
    assert soprano_of(tmp_path, line) == [72] * 8 + [69] * 4 + [SILENT] * 4


def test_a_direction_without_a_tempo_is_passed_over(tmp_path):
    loud = '<direction><sound dynamics="90"/></direction><sound/>'
    assert soprano_of(tmp_path, attributes() + loud + note("C", 5, 8)) == [72] * 16


def test_a_melody_has_a_run_from_each_interval_on():
    pitches = np.array([60, 60, 62, SILENT, 61, 64, 63, 67, 65, 66, 60, 69])
    intervals = [2, -1, 3, -1, 4, -2, 1, -6, 9]
    grid = np.stack([pitches] * 4, axis=1)
    assert melody_runs(grid) == {tuple(intervals[:PHRASE]), tuple(intervals[1:])}
    assert melody_runs(grid[:4]) == {(2,)}


def test_the_first_note_of_a_chord_and_no_grace_notes(tmp_path):
    line = (
        attributes() + note("B", 4, 0, grace="<grace/>") + note("C", 5, 4)
        + note("E", 5, 4, chord="<chord/>") + note("D", 5, 4)
    )  # fmt: skip
    assert soprano_of(tmp_path, line) == [72] * 8 + [74] * 8


def test_a_transposing_part_sounds_where_it_sounds(tmp_path):
    extra = "<transpose><chromatic>-2</chromatic><octave-change>-1</octave-change></transpose>"
    assert soprano_of(tmp_path, attributes(extra=extra) + note("C", 5, 8)) == [58] * 16


def test_a_step_holds_what_sounds_at_its_start(tmp_path):
    line = attributes(8) + note("C", 5, 1) + note("D", 5, 1) + note("E", 5, 30)
    assert soprano_of(tmp_path, line) == [72] + [76] * 15


def test_a_pickup_is_as_long_as_it_is_written(tmp_path):
    path = tmp_path / "a.mxl"
    pickup = f"<measure>{attributes(1)}{note('G', 4, 1)}</measure>"
    bar = f"<measure>{note('C', 4, 4)}</measure>"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.musicxml", f"<s>{f'<part>{pickup}{bar}</part>' * 4}</s>")
    assert read_chorale(path).content[:, 3].tolist() == [67] * 4 + [60] * 16


def test_an_incomplete_measure_does_not_shift_a_voice(tmp_path):
    lines = soprano_of(tmp_path, attributes() + note("C", 5, 2), note("D", 5, 8))
    assert lines == [72] * 4 + [SILENT] * 12 + [74] * 16


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
    assert read_chorale(corpus_files("bach")[1]).content.shape[1] == 4
    assert "music21" not in sys.modules


def test_a_missing_music21_is_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="music21, which is not installed"):
        corpus_files("bach")


@needs_music21
def test_a_known_chorale():
    path = next(path for path in corpus_files("bach") if path.name == "bwv66.6.mxl")
    grid = read_chorale(path).content
    # "Christ ist erstanden": an eighth pair leads to F sharp minor; C#5, B4, then A4, B4, C#5, E5.
    assert grid[:2, 0].tolist() == [73, 73]
    assert grid[2:4, 0].tolist() == [71, 71]
    assert grid[4:16:4, 0].tolist() == [69, 71, 73]
    assert grid[4].tolist() == [69, 66, 61, 54]
