"""Scores in the package music21: Bach's chorales split by tune, string quartets, a trio sonata.

Importing music21 takes seconds and reads its user settings. Its files need neither, so the package
is only located, and its MusicXML is read by `musicxml.py`.
"""

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.musicxml import MUSICXML_SUFFIXES, parse_musicxml
from triptych.domains.music.notes import SILENT, Ids, Score, voice_grid
from triptych.domains.music.sources.base import LOG, HashedSource, Piece
from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer, Grid
from triptych.domains.music.tokenizers.voices import N_VOICES, STEPS_PER_QUARTER
from triptych.errors import UserError
from triptych.files.reading import read_in_order
from triptych.files.splits import warn_of_skipped

Read = TypeVar("Read")

PHRASE = 8
"""Length of the compared runs of a melody, in intervals: about a line of a hymn."""
MIN_SHARED = 0.4
"""Share of the shorter melody's runs at which two chorales have the same tune.

Among music21's 364 chorales, most pairs that share a run lie below 0.2, and most settings of one
hymn above 0.5. At 0.4 there are 234 tunes, the most frequent with ten settings.
"""


class Chorale(NamedTuple):
    """A chorale as it is in a score."""

    name: str
    grid: Grid
    struck: NDArray[np.bool_]
    """bool [T, 4], True where a note begins."""


@dataclass(frozen=True)
class Music21Chorales(HashedSource):
    """Bach's four-part chorales in music21's package, on a grid of sixteenths; no download.

    All harmonisations of a tune, in any key, and copies of a chorale are in one split, so that no
    validation piece has a soprano known from training. The hash of the first file name of a tune
    decides its split.
    """

    leave_out: str | None = field(default=None, kw_only=True)
    """Folder of the JSB chorales (see `JSBChorales`): leave out every chorale that is in their
    validation or test split, so that a model may be compared on these; null for none."""

    content = ChoraleTokenizer.content

    def check(self, tokenizer: MusicTokenizer) -> None:
        if not isinstance(tokenizer, ChoraleTokenizer):  # attacks are known, and may be left out
            super().check(tokenizer)

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        assert isinstance(tokenizer, ChoraleTokenizer)
        left_out = _in_held_out_jsb(self.leave_out) if self.leave_out is not None else ()
        chorales, tunes = _all_chorales()
        return [
            Piece(chorale.name, tokenizer.content_of(chorale.grid, chorale.struck))
            for chorale, first in zip(chorales, tunes, strict=True)
            if self.split_of(chorales[first].name.encode()) == split
            and chorale.name not in left_out
        ]


@functools.cache
def _all_chorales() -> tuple[list[Chorale], list[int]]:
    """Read all chorales by file name, and their tunes; once per process."""
    files = [path for path in corpus_files("bach") if path.suffix == ".mxl"]
    chorales = _read_all(read_chorale, sorted(files, key=lambda path: path.stem))
    return chorales, find_tunes([chorale.grid for chorale in chorales])


@functools.cache
def _in_held_out_jsb(directory: str) -> list[str]:
    """Return the names of the chorales in JSB's validation and test splits; logs them once."""
    jsb = JSBChorales(directory)
    held_out = [
        piece.content
        for split in ("validation", "test")
        for piece in jsb.load(split, ChoraleTokenizer())
    ]
    chorales, _ = _all_chorales()
    found = in_another_edition([chorale.grid for chorale in chorales], held_out)
    names = [chorale.name for chorale, is_found in zip(chorales, found, strict=True) if is_found]
    LOG.warning(
        "%d of %d chorales are in the validation or test split of %s and are left out: %s",
        *(len(names), len(chorales), directory, ", ".join(names)),
    )
    return names


def _read_all(read: Callable[[Path], Read | None], files: list[Path]) -> list[Read]:
    """Return what `read` makes of the files, but None; a warning names those it refuses."""
    results = [*read_in_order(partial(_or_reason, read), files, count=len(files), what="scores")]
    skipped = [result for result in results if isinstance(result, str)]
    warn_of_skipped("music21's scores", skipped, len(files))
    return [result for result in results if result is not None and not isinstance(result, str)]


def _or_reason(read: Callable[[Path], Read | None], path: Path) -> Read | str | None:
    try:
        return read(path)
    except (UserError, ValueError) as error:
        return f"{path.name}: {error}"


def corpus_files(composer: str) -> list[Path]:
    """List the MusicXML files of a composer inside the installed music21, by path.

    Raises UserError where the package is not installed.
    """
    package = importlib.util.find_spec("music21")
    folders = list(package.submodule_search_locations or []) if package else []
    files = [
        path
        for folder in folders
        for path in Path(folder, "corpus", composer).rglob("*")
        if path.suffix in MUSICXML_SUFFIXES
    ]
    if not files:
        raise UserError(
            "the scores come with the package music21, which is not installed here: "
            "pip install 'triptych[demo]'"
        )
    return sorted(files)


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


COMPOSERS = ("beethoven", "corelli", "haydn", "mozart", "schumann_robert")
PROGRAMS = {
    "violin": 40, "violino": 40, "viola": 41, "violoncello": 42, "cello": 42, "violone": 42,
}  # fmt: skip
"""Program of General MIDI by a word of a part's name; the programs that the files name are often
those of other instruments."""
LEAST_PARTS = 3


@dataclass(frozen=True)
class Music21Ensembles(HashedSource):
    """String quartets and a trio sonata in music21's package; no download.

    All scores of the COMPOSERS that have three or more parts, all of them strings. A piece is a
    file, named composer/work/movement or composer/work: a movement, or a whole work of some
    movements. All movements of a work are in one split, which the hash of composer/work decides.
    """

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        return [
            Piece(score.name, tokenizer.from_midi(score))
            for score in all_ensembles()
            if self.split_of("/".join(score.name.split("/")[:2]).encode()) == split
        ]


@functools.cache
def all_ensembles() -> list[Score]:
    """Read all ensembles by composer and path, once per process; UserError without music21."""
    return _read_all(read_ensemble, [path for name in COMPOSERS for path in corpus_files(name)])


def read_ensemble(path: Path) -> Score | None:
    """Read a score; None where a part is for another instrument, or where there are too few."""
    name = path.as_posix().partition("/corpus/")[2].removesuffix(path.suffix)
    score = parse_musicxml(path.read_bytes(), name=name)
    programs = [
        next((PROGRAMS[word] for word in words if word in PROGRAMS), None)
        for words in (part.name.lower().replace(".", " ").split() for part in score.parts)
    ]
    known = [program for program in programs if program is not None]
    if len(known) < max(LEAST_PARTS, len(programs)):
        return None
    return replace(score, notes=replace(score.notes, program=np.array(known)[score.notes.part]))
