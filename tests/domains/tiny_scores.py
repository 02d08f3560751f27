"""Small scores from lists of notes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from triptych.domains.music.notes import DRUMS, Notes, Part, Score

Line = Sequence[tuple[float, float, int]]
"""Onset and release in quarters, and pitch."""


def score_of(
    parts: Sequence[tuple[str, int, Line]],
    *,
    meters: Sequence[tuple[float, int, int]] = ((0, 4, 4),),
    tempo: float = 90,
    key: tuple[int, bool] | None = None,
) -> Score:
    """A score of 480 ticks in a quarter; parts: name, program and notes."""
    rows = [
        (pitch, round(480 * onset), round(480 * release), 80, number, program)
        for number, (_, program, line) in enumerate(parts)
        for onset, release, pitch in line
    ]
    notes = Notes.of(rows).with_times(lambda times: times.astype(np.int64))
    return Score(
        "own.mid",
        [Part(name, program == DRUMS) for name, program, _ in parts],
        notes.sorted("part", "onset", "release", "pitch"),
        480,
        int(notes.release.max()),
        [(0, round(60e6 / tempo))],
        [(round(480 * at), count, unit) for at, count, unit in meters],
        [] if key is None else [(0, *key)],
    )


def quarters(score: Score, part: int) -> list[tuple[float, float, int]]:
    notes = score.notes[score.notes.part == part]
    unit = score.ticks_per_quarter
    return [(a / unit, b / unit, p) for a, b, p in notes.rows("onset", "release", "pitch")]
