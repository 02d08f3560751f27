"""Real MIDI files come back when they are written again, and as performance events."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from triptych.domains.music.midi import MIDI_SUFFIXES, midi_bytes, parse_midi
from triptych.domains.music.notes import Score
from triptych.domains.music.sources.midi_folder import stored_files
from triptych.domains.music.tokenizers.events import EventTokenizer

TOLERANCE = 0.005 + 1e-6
"""Largest deviation of a time in seconds: events are 10 ms apart."""
FOLDERS = {"maestro-subset": 4, "pop909": 30}
"""Folder of the shared data -> number of its files that are read."""


def plain_notes(score: Score) -> list[tuple[int, float, float, int]]:
    """The notes as they sound, the pedal applied one note at a time."""
    rows = list(score.notes.rows("onset", "release", "pitch", "velocity", "part"))
    pitched = [(number, part) for number, part in enumerate(score.parts) if not part.is_drum]
    numbers = [number for number, _ in pitched]
    ends = [release for _, release, *_, part in rows if part in numbers]
    end = max([*ends, *(tick for _, part in pitched for tick, _ in part.pedal)], default=0)
    by_pitch: dict[int, list[list[Any]]] = defaultdict(list)
    for number, part in pitched:
        where = 0
        own = [row[:4] for row in rows if row[4] == number]
        for onset, release, pitch, velocity in sorted(own, key=lambda row: row[1]):
            while where < len(part.pedal) and part.pedal[where][0] <= release:
                where += 1
            sounds_to = release
            if where and part.pedal[where - 1][1]:
                ups = (tick for tick, is_down in part.pedal[where:] if not is_down)
                sounds_to = next(ups, end)
            by_pitch[pitch].append([*score.seconds([onset, sounds_to]).tolist(), velocity])
    result = []
    for pitch, notes in by_pitch.items():
        merged: list[list[Any]] = []
        for onset, release, velocity in sorted(notes):
            if merged and math.floor(merged[-1][0] * 100 + 0.5) == math.floor(onset * 100 + 0.5):
                merged[-1][1:] = max(merged[-1][1], release), max(merged[-1][2], velocity)
            else:
                merged.append([onset, release, velocity])
        for index, (onset, release, velocity) in enumerate(merged):
            release = max(release, onset + 0.01)
            if index + 1 < len(merged):
                release = min(release, merged[index + 1][0])
            result.append((pitch, onset, release, velocity))
    return sorted(result)


@pytest.fixture(params=FOLDERS)
def scores(request: pytest.FixtureRequest, shared_data: Path) -> list[Score]:
    with stored_files(shared_data / request.param, MIDI_SUFFIXES) as files:
        some = files[: FOLDERS[request.param]]
        return [parse_midi(file.read(), name=file.name) for file in some]


@pytest.mark.slow
def test_a_file_is_the_same_when_it_is_written_again(scores: list[Score]) -> None:
    for score in scores:
        again = parse_midi(midi_bytes(score), name=score.name)
        names = ("part", "pitch", "onset", "release", "velocity", "program")
        before, after = (sorted(each.notes.rows(*names)) for each in (score, again))
        assert after == before
        frame = ("parts", "time_signatures", "key_signatures", "chords", "last_tick")
        for name in frame:
            assert getattr(again, name) == getattr(score, name), name
        assert [tempo for tempo in again.tempos if tempo in score.tempos] == list(score.tempos)


@pytest.mark.slow
def test_notes_come_back_from_events(scores: list[Score]) -> None:
    tokenizer = EventTokenizer()
    for score in scores:
        ids = tokenizer.encode(tokenizer.from_midi(score))
        written = parse_midi(midi_bytes(tokenizer.to_score(ids)), name=f"{score.name}, decoded")
        rows = written.notes_in_seconds.rows("pitch", "onset", "release", "velocity")
        for want, have in zip(plain_notes(score), sorted(rows), strict=True):
            assert have[0] == want[0]
            assert have[1:3] == pytest.approx(want[1:3], abs=TOLERANCE)
            assert have[3] // 4 == want[3] // 4
        assert (tokenizer.encode(tokenizer.from_midi(written)) == ids).all()
