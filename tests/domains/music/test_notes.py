"""The note table: rows, units of time, and the way to instruments and back."""

from __future__ import annotations

import numpy as np
from dataclass_rules import changeable_dataclasses, names_of_many_defaults, positional_options
from pretty import new_midi, notes_of

from triptych.domains.music.midi import score_instruments
from triptych.domains.music.notes import (
    DRUMS,
    Notes,
    Part,
    Score,
    on_grid,
    one_string_per_key,
    voice_grid,
)


def rows(notes: Notes) -> list[tuple[float, ...]]:
    return list(notes.rows("pitch", "onset", "release", "velocity", "part", "program"))


def test_notes_become_instruments_and_come_back() -> None:
    written = [(60, 0, 500, 80, 0, 40), (64, 250, 1000, 70, 0, 40), (36, 500, 600, 90, 1, DRUMS)]
    parts = [Part("violin", False), Part("", True), Part("rests", False)]
    midi = new_midi()
    midi.instruments = score_instruments(Score("", parts, Notes.of(written), 500, 1000, [], []))
    assert [(part.name, part.program, part.is_drum) for part in midi.instruments] == [
        ("violin", 40, False), ("", 0, True), ("rests", 0, False),
    ]  # fmt: skip
    in_seconds = [(p, on / 1000, off / 1000, *others) for p, on, off, *others in written]
    assert rows(notes_of(midi)) == in_seconds
    assert len(notes_of(new_midi())) == len(on_grid(Notes.of([]), 4)) == 0


def test_steps_of_a_grid_have_no_drums_and_no_empty_note() -> None:
    notes = Notes.of([(62, 30, 31, 80), (60, 0, 61, 80), (36, 0, 60, 80, 1, DRUMS)])
    steps = on_grid(notes, 4, per=60)
    assert rows(steps) == [(60, 0, 4, 80, 0, 0), (62, 2, 3, 80, 0, 0)]
    assert voice_grid(steps, 1)[:, 0].tolist() == [60, 60, 62, 60]  # the later note on top


def test_a_string_sounds_once_in_each_part() -> None:
    notes = Notes.of([(60, 0, 9, 50), (60, 4, 5, 60), (60, 4, 8, 70), (60, 2, 9, 80, 1)])
    joined = one_string_per_key(notes, notes.onset, least=1)
    assert rows(joined) == [(60, 0, 4, 50, 0, 0), (60, 4, 8, 70, 0, 0), (60, 2, 9, 80, 1, 0)]
    loud = one_string_per_key(notes[np.array([0, 1])], np.array([0, 0]), least=1)
    assert rows(loud) == [(60, 0, 9, 60, 0, 0)]


def test_values_of_this_package_cannot_be_changed() -> None:
    assert not changeable_dataclasses("triptych.domains.music")
    assert not positional_options("triptych.domains.music")
    found = names_of_many_defaults("triptych.domains.music")
    # What a score holds, and what a tokenizer writes of it, have one name.
    assert found == {"count", "chords", "keys", "tempos", "left_out"}
