"""Scores of several parts: MusicXML as MIDI, and what the corpus keeps as tokens."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from triptych.domains.music.musicxml import TICKS_PER_QUARTER, read_musicxml
from triptych.domains.music.sources.music21 import Music21Ensembles, all_ensembles, read_ensemble
from triptych.domains.music.tokenizers.remi import RemiTokenizer

needs_packages = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("music21", "miditok"))),
    reason="music21 or miditok is not installed",
)
STRINGS = ("violin", "violin", "viola", "cello")
TIME = "<time><beats>3</beats><beat-type>4</beat-type></time>"


def note(step: str, octave: int, duration: int, extra: str = "") -> str:
    pitch = f"<pitch><step>{step}</step><octave>{octave}</octave></pitch>"
    return f"<note>{extra}{pitch}<duration>{duration}</duration></note>"


def write_score(path: Path, parts: dict[str, list[str]]) -> Path:
    """A score; parts: name and the content of each measure, 4 divisions a quarter."""
    listed = "".join(
        f'<score-part id="P{n}"><part-name>{name}</part-name></score-part>'
        for n, name in enumerate(parts)
    )
    written = "".join(
        f'<part id="P{n}">'
        + "".join(f"<measure>{measure}</measure>" for measure in measures)
        + "</part>"
        for n, measures in enumerate(parts.values())
    )
    path.write_text(f"<score-partwise><part-list>{listed}</part-list>{written}</score-partwise>")
    return path


def attributes(time: str = TIME) -> str:
    return f"<attributes><divisions>4</divisions>{time}</attributes>"


def tied(kind: str) -> str:
    return f'<tie type="{kind}"/>'


def test_ties_pickups_tempos_and_chords(tmp_path: Path) -> None:
    """A pickup of a quarter, then 3/4; a note tied over two bar lines; a chord; a tempo."""
    tempo = '<direction><sound tempo="90"/></direction>'
    upper = [
        attributes() + tempo + note("C", 5, 4, tied("start")),
        note("C", 5, 12, tied("stop") + tied("start")),
        note("C", 5, 4, tied("stop")) + note("C", 5, 4) + note("E", 5, 4, "<chord/>"),
    ]
    lower = [attributes() + note("A", 3, 4), note("F", 3, 12), note("F", 3, 12)]
    path = write_score(tmp_path / "s.xml", {"Violin": upper, "Cello": lower})
    midi = read_musicxml(path, name="s")
    quarter = TICKS_PER_QUARTER
    found = [
        list(zip(own.onset / quarter, own.release / quarter, own.pitch, strict=True))
        for own in (midi.notes[midi.notes.part == part] for part in (0, 1))
    ]
    assert found == [
        [(0, 5, 72), (5, 6, 72), (5, 6, 76)],
        [(0, 1, 57), (1, 4, 53), (4, 7, 53)],
    ]
    assert midi.time_signatures == [(0, 1, 4), (quarter, 3, 4)]
    assert midi.tempos == [(0, 666667)]


def test_parts_are_known_by_their_names(tmp_path: Path) -> None:
    measures = [attributes() + note("C", 4, 12)]
    names = ("Violino I.", "2nd Violin", "Violone e Organo")
    trio = write_score(tmp_path / "trio.xml", dict.fromkeys(names, measures))
    score = read_ensemble(trio)
    assert score is not None
    first = np.unique(score.notes.part, return_index=True)[1]
    assert score.notes.program[first].tolist() == [40, 40, 42]
    for names in (("Violin", "Cello"), ("Violin I", "Violin II", "Voice")):
        other = write_score(tmp_path / "other.xml", dict.fromkeys(names, measures))
        assert read_ensemble(other) is None


@pytest.mark.slow
@needs_packages
def test_every_score_of_the_corpus_comes_back(instrument_roundtrip: ModuleType) -> None:
    """All notes, and most of them at their time: triplets and 32nds together fit no grid."""
    tokenizer, shifts = RemiTokenizer(STRINGS), []
    for score in all_ensembles():
        trip = instrument_roundtrip.round_trip(tokenizer, score)
        assert len(trip.shifts) == trip.before == trip.after, score.name
        assert max(trip.shifts) < 0.1, score.name
        shifts += trip.shifts
    assert sum(shift > instrument_roundtrip.EQUAL for shift in shifts) < 0.05 * len(shifts)


@pytest.mark.slow
@needs_packages
def test_works_are_split_whole() -> None:
    source = Music21Ensembles(validation_share=0.2, test_share=0.2)
    tokenizer = RemiTokenizer(STRINGS)
    works = [
        {
            piece.name.rpartition("/")[0]
            for piece in source.load(split, tokenizer)
            if piece.name.count("/") > 1
        }
        for split in ("train", "validation", "test")
    ]
    assert not works[0] & works[1]
    assert not works[0] & works[2]
    assert (
        sum(len(source.load(split, tokenizer)) for split in ("train", "validation", "test")) == 52
    )
