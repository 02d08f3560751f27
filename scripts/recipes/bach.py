"""Bach's four-part chorales in the package music21, split by tune, as MIDI files.

Writes NAME.mid, on a grid of sixteenths with the beginnings of notes, in four parts from soprano to
bass, and splits.csv with the columns midi_filename and split. All harmonisations of a tune, in any
key, and copies of a chorale are in one split, so that no validation piece has a soprano known from
training. Needs the extra demo. The music is in the public domain; music21 says under which licence
its encodings stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.musicxml import parse_musicxml
from triptych.domains.music.notes import SILENT, Ids, voice_grid
from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.tokenizers.attacks import AttackTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer, Grid
from triptych.domains.music.tokenizers.voices import N_VOICES, STEPS_PER_QUARTER

from ._music21 import LOG, Shares, corpus_files, files_of, read_all

PHRASE = 8
"""Length of the compared runs of a melody, in intervals: about a line of a hymn."""
MIN_SHARED = 0.4
"""Share of the shorter melody's runs at which two chorales have the same tune.

Among music21's 364 chorales, most pairs that share a run lie below 0.2, and most settings of one
hymn above 0.5. At 0.4 there are 234 tunes, the most frequent with ten settings.
"""


@dataclass(frozen=True, kw_only=True)
class Options(Shares):
    """What is held out and left out."""

    leave_out: str | None = None
    """Folder of the JSB chorales (see `JSBChorales`): leave out every chorale that is in their
    validation or test split, so that a model may be compared on these; null for none."""


def main(options: Options) -> Iterator[tuple[str, list[str] | bytes]]:
    """Yield the files."""
    files = [path for path in corpus_files("bach") if path.suffix == ".mxl"]
    chorales = read_all(read_chorale, sorted(files, key=lambda path: path.stem))
    tunes = find_tunes([chorale.grid for chorale in chorales])
    left_out = [] if options.leave_out is None else in_held_out_jsb(chorales, options.leave_out)
    tokenizer = AttackTokenizer()
    yield from files_of(
        (
            chorale.name,
            options.split_of(chorales[first].name),
            tokenizer.to_score(tokenizer.encode(tokenizer.content_of(*chorale[1:]))),
        )
        for chorale, first in zip(chorales, tunes, strict=True)
        if chorale.name not in left_out
    )


class Chorale(NamedTuple):
    """A chorale as it is in a score."""

    name: str
    grid: Grid
    struck: NDArray[np.bool_]
    """bool [T, 4], True where a note begins."""


def in_held_out_jsb(chorales: list[Chorale], directory: str) -> list[str]:
    """Return the names of the chorales in JSB's validation and test splits; logs them."""
    jsb = JSBChorales(directory)
    held_out = [
        piece.content
        for split in ("validation", "test")
        for piece in jsb.load(split, ChoraleTokenizer())
    ]
    found = in_another_edition([chorale.grid for chorale in chorales], held_out)
    names = [chorale.name for chorale, is_found in zip(chorales, found, strict=True) if is_found]
    LOG.warning(
        "%d of %d chorales are in the validation or test split of %s and are left out: %s",
        *(len(names), len(chorales), directory, ", ".join(names)),
    )
    return names


def line_runs(line: Ids) -> set[tuple[int, ...]]:
    """Return all runs of PHRASE intervals of a voice, without rests and repeated pitches.

    Intervals are equal in all keys. A voice shorter than a run is one run. line: pitches, [T].
    """
    line = line[line != SILENT]
    changes = np.flatnonzero(np.diff(line))
    intervals = tuple(np.diff(line)[changes].tolist())
    last = max(0, len(intervals) - PHRASE)
    return {intervals[start : start + PHRASE] for start in range(last + 1)}


def find_tunes(grids: list[Grid]) -> list[int]:
    """Return for each piece the index of the first piece with the same tune."""
    melodies = [line_runs(grid[:, 0]) for grid in grids]
    tunes = list(range(len(grids)))
    for (first, one), (second, other) in combinations(enumerate(melodies), 2):
        if _share_runs(one, other):
            low, high = sorted((tunes[first], tunes[second]))
            tunes = [low if tune == high else tune for tune in tunes]
    return tunes


def in_another_edition(grids: list[Grid], others: list[Grid]) -> list[bool]:
    """Return for each chorale whether one of the others is the same harmonisation, in any key.

    It shares MIN_SHARED of the shorter piece's runs of alto, tenor and bass; the soprano is equal
    in all harmonisations of a tune. Repeats and a few other notes change no more than some runs.
    Between music21's chorales and the JSB file no pair of pieces lies between 0.3 and 0.55.
    """

    def lower_runs(grid: Grid) -> set[tuple[int, ...]]:
        return {(v, *run) for v in range(1, N_VOICES) for run in line_runs(grid[:, v])}

    known = [lower_runs(grid) for grid in others]
    return [any(_share_runs(runs, other) for other in known) for runs in map(lower_runs, grids)]


def _share_runs(one: set[tuple[int, ...]], other: set[tuple[int, ...]]) -> bool:
    return len(one & other) >= MIN_SHARED * min(len(one), len(other))


def read_chorale(path: Path) -> Chorale | None:
    """Read a piece of four parts as a grid; None for a piece with another number of parts.

    Where notes of a part overlap, the first one sounds, the lower one of two that begin together.
    Raises UserError for a damaged file, ValueError for a pitch without a symbol.
    """
    score = parse_musicxml(path.read_bytes(), name=path.name)
    if len(score.parts) != N_VOICES:
        return None

    def steps(ticks: Ids) -> Ids:
        return -(-ticks * STEPS_PER_QUARTER // score.ticks_per_quarter)

    notes = score.notes.with_times(steps)
    grid = voice_grid(notes[::-1], N_VOICES)  # [T, 4], the first one last
    missing = int(steps(np.array(score.last_tick))) - len(grid)
    grid = np.pad(grid, ((0, missing), (0, 0)), constant_values=SILENT)
    ChoraleTokenizer().encode(grid)
    # A note that another one covers does not begin.
    notes = notes[notes.release > notes.onset]
    notes = notes[grid[notes.onset, notes.part] == notes.pitch]
    struck = np.zeros(grid.shape, dtype=bool)
    struck[notes.onset, notes.part] = True
    return Chorale(path.stem, grid, struck)
