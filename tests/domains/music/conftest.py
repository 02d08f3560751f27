"""Small pieces that the music tests share."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import mido
import numpy as np
import pretty_midi
import pytest
from pretty import midi_bytes, new_midi

from triptych.domains.music.midi import parse_midi
from triptych.domains.music.notes import Notes, Score, performance

Row = tuple[int, float, float, int]


def piano(rows: Iterable[Row], pedal: Iterable[tuple[float, int]] = ()) -> pretty_midi.PrettyMIDI:
    midi = new_midi()
    instrument = pretty_midi.Instrument(program=0)
    for pitch, onset, release, velocity in rows:
        instrument.notes.append(pretty_midi.Note(velocity, pitch, onset, release))
    for time, value in pedal:
        instrument.control_changes.append(pretty_midi.ControlChange(64, value, time))
    midi.instruments.append(instrument)
    return midi


@pytest.fixture
def make_piano() -> Callable[..., pretty_midi.PrettyMIDI]:
    return piano


@pytest.fixture
def parsed() -> Callable[[pretty_midi.PrettyMIDI], Score]:
    """What is read of a piece after it was written; ticks are 1 ms."""
    return lambda midi: parse_midi(midi_bytes(midi), name="written")


@pytest.fixture
def sounding(parsed) -> Callable[[pretty_midi.PrettyMIDI], Notes]:
    """The sounding notes of a piece, pedal applied."""
    return lambda midi: performance(parsed(midi))


@pytest.fixture
def rows_of(sounding) -> Callable[[pretty_midi.PrettyMIDI], list[Row]]:
    """The sounding notes of a piece, pedal applied, times rounded to the microsecond."""

    def read(midi: pretty_midi.PrettyMIDI) -> list[Row]:
        notes = sounding(midi)
        table = zip(notes.pitch, notes.onset, notes.release, notes.velocity, strict=True)
        return [(int(p), round(float(o), 6), round(float(r), 6), int(v)) for p, o, r, v in table]

    return read


def busy_rows(seed: int, count: int = 200) -> list[Row]:
    """Dense playing with repeated, overlapping and very short notes."""
    random = np.random.default_rng(seed)
    onset = np.sort(random.uniform(0, 20, count))
    release = onset + random.exponential(0.3, count)
    pitch = random.integers(40, 60, count)
    velocity = random.integers(1, 128, count)
    table = zip(pitch, onset, release, velocity, strict=True)
    return [(int(p), float(o), float(r), int(v)) for p, o, r, v in table]


@pytest.fixture
def busy_piece() -> Callable[[int], pretty_midi.PrettyMIDI]:
    def make(seed: int) -> pretty_midi.PrettyMIDI:
        random = np.random.default_rng(seed + 1000)
        times = np.sort(random.uniform(0, 21, 30))
        return piano(busy_rows(seed), [(float(t), int(random.integers(0, 128))) for t in times])

    return make


@pytest.fixture
def raw_midi() -> Callable[..., bytes]:
    """Bytes of a file with the given tracks of messages in absolute ticks."""

    def make(*tracks: list[tuple[int, mido.Message]], ticks: int = 500, kind: int = 1) -> bytes:
        file = mido.MidiFile(type=kind, ticks_per_beat=ticks)
        for messages in tracks:
            track, before = mido.MidiTrack(), 0
            for tick, message in messages:
                track.append(message.copy(time=tick - before))
                before = tick
            file.tracks.append(track)
        buffer = io.BytesIO()
        file.save(file=buffer)
        return buffer.getvalue()

    return make


@pytest.fixture
def instrument_roundtrip(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script of this name."""
    path = Path(__file__).resolve().parents[3] / "scripts" / "instrument_roundtrip"
    loader = SourceFileLoader("instrument_roundtrip", str(path))
    module = ModuleType(loader.name)
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    return module
