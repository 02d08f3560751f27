"""Bach's four-part chorales inside the package music21: read, and split by tune.

Importing music21 takes seconds and reads its user settings. Its files need neither, so the package
is only located, and its compressed MusicXML (.mxl, a zip archive of one document) is read here, as
far as a grid of sixteenths needs it.
"""

import functools
import importlib.util
import itertools
import math
import xml.etree.ElementTree as ElementTree
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from triptych.domains.music.sources.base import HashedSource, Piece
from triptych.domains.music.tokenizers.chorales import (
    N_VOICES,
    SILENT,
    STEPS_PER_QUARTER,
    ChoraleTokenizer,
    Grid,
)
from triptych.domains.sources import warn_of_skipped
from triptych.errors import UserError

SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_Note = tuple[int, Fraction, Fraction, int]
"""Measure, onset in the measure and duration, both in quarters, and sounding MIDI pitch."""
PHRASE = 8
"""Length of the compared runs of a melody, in intervals: about a line of a hymn."""
MIN_SHARED = 0.4
"""Share of the shorter melody's runs at which two chorales have the same tune.

Among music21's 364 chorales, most pairs that share a run lie below 0.2, and most settings of one
hymn above 0.5. At 0.4 there are 234 tunes, the most frequent with ten settings.
"""


@dataclass(frozen=True)
class Music21Chorales(HashedSource):
    """Bach's four-part chorales in music21's package, on a grid of sixteenths; no download.

    All harmonisations of a tune, in any key, and copies of a chorale are in one split, so that no
    validation piece has a soprano known from training. The hash of the first file name of a tune
    decides its split.
    """

    validation_share: float = 0.1
    """Share of the tunes held out for validation, 0 to 1."""
    test_share: float = 0.1
    """Share of the tunes held out for the test, 0 to 1."""

    tokenizer = ChoraleTokenizer()

    def load(self, split: str) -> list[Piece]:
        pieces, tunes = _all_chorales()
        return [
            piece
            for piece, first in zip(pieces, tunes, strict=True)
            if self.split_of(pieces[first].name.encode()) == split
        ]


@functools.cache
def _all_chorales() -> tuple[list[Piece], list[int]]:
    """Read all chorales by file name, and their tunes; once per process."""
    pieces, skipped = [], []
    files = music21_files()
    for path in files:
        try:
            grid = read_mxl(path)
            if grid is not None:
                Music21Chorales.tokenizer.encode(grid)  # refuses a pitch without a symbol
                pieces.append(Piece(path.stem, grid))
        except (UserError, ValueError) as error:
            skipped.append(f"{path.name}: {error}")
    warn_of_skipped("music21's chorales", skipped, len(files))
    return pieces, find_tunes([piece.content for piece in pieces])


def music21_files() -> list[Path]:
    """List the .mxl files of Bach's works inside the installed music21, by file name.

    Raises UserError where the package is not installed.
    """
    found = importlib.util.find_spec("music21")
    folders = list(found.submodule_search_locations or []) if found else []
    files = [path for folder in folders for path in Path(folder, "corpus", "bach").glob("*.mxl")]
    if not files:
        raise UserError(
            "the chorales come with the package music21, which is not installed here: "
            "pip install 'triptych[demo]'"
        )
    return sorted(files, key=lambda path: path.stem)


def melody_runs(grid: Grid) -> set[tuple[int, ...]]:
    """Return all runs of PHRASE intervals of the soprano, without rests and repeated pitches.

    Intervals are equal in all keys. A melody shorter than a run is one run.
    """
    soprano = grid[:, 0]
    soprano = soprano[soprano != SILENT]
    changes = np.flatnonzero(np.diff(soprano))
    intervals = tuple(np.diff(soprano)[changes].tolist())
    last = max(0, len(intervals) - PHRASE)
    return {intervals[start : start + PHRASE] for start in range(last + 1)}


def find_tunes(grids: list[Grid]) -> list[int]:
    """Return for each piece the index of the first piece with the same tune."""
    melodies = [melody_runs(grid) for grid in grids]
    tunes = list(range(len(grids)))
    holders: dict[tuple[int, ...], list[int]] = defaultdict(list)
    shared: Counter[tuple[int, int]] = Counter()
    for second, melody in enumerate(melodies):
        for run in melody:
            shared.update((first, second) for first in holders[run])
            holders[run].append(second)
    for (first, second), count in shared.items():
        if count >= MIN_SHARED * min(len(melodies[first]), len(melodies[second])):
            low, high = sorted((tunes[first], tunes[second]))
            tunes = [low if tune == high else tune for tune in tunes]
    return tunes


def read_mxl(path: Path) -> Grid | None:
    """Read a piece of four parts as a grid; None for a piece with another number of parts.

    A second voice of a part, and notes of a chord after the first, sound only where the part is
    silent. Grace notes are left out. Ties need no care, since the grid holds what sounds. A pickup
    is as long as it is written, and no repeat is played twice. Raises UserError for a damaged file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            documents = [
                name
                for name in archive.namelist()
                if name.endswith((".xml", ".musicxml")) and not name.startswith("META-INF/")
            ]
            elements = ElementTree.fromstring(archive.read(documents[0])).findall("part")
        if len(elements) != N_VOICES:
            return None
        parts = [_read_part(element) for element in elements]
    # A damaged archive or document raises any of a dozen types.
    except Exception as error:
        raise UserError(f"{path} is not a MusicXML file that can be read ({error!r})") from error
    # The longest part decides, so that an incomplete measure does not shift a voice.
    measures = itertools.zip_longest(*(lengths for lengths, _ in parts), fillvalue=Fraction(0))
    starts = [*itertools.accumulate(map(max, measures), initial=Fraction(0))]  # in quarters
    n_steps = math.ceil(starts[-1] * STEPS_PER_QUARTER)
    grid = np.full((n_steps, N_VOICES), SILENT, dtype=np.int64)
    for voice, (_, notes) in enumerate(parts):
        for measure, onset, duration, pitch in notes:
            first = (starts[measure] + onset) * STEPS_PER_QUARTER
            stop = first + duration * STEPS_PER_QUARTER
            cells = grid[math.ceil(first) : math.ceil(stop), voice]
            cells[cells == SILENT] = pitch
    return grid


def _read_part(part: ElementTree.Element) -> tuple[list[Fraction], list[_Note]]:
    """Return the length of each measure of a part in quarters, and its notes."""
    divisions, transposition = 1, 0
    lengths: list[Fraction] = []
    notes: list[_Note] = []
    for number, measure in enumerate(part.findall("measure")):
        now = end = onset = Fraction(0)
        for element in measure:
            duration = Fraction(element.findtext("duration", "0")) / divisions
            if element.tag == "attributes":
                divisions = int(element.findtext("divisions", divisions))
                if element.find("transpose") is not None:
                    octaves = int(element.findtext("transpose/octave-change", 0))
                    transposition = int(element.findtext("transpose/chromatic", 0)) + 12 * octaves
            elif element.tag == "backup":
                now -= duration
            elif element.tag == "forward":
                now += duration
            elif element.tag == "note" and element.find("grace") is None:
                if element.find("chord") is None:
                    onset, now = now, now + duration
                pitch = element.find("pitch")
                if pitch is not None:
                    notes.append((number, onset, duration, _midi_pitch(pitch) + transposition))
            end = max(end, now)
        lengths.append(end)
    return lengths, notes


def _midi_pitch(pitch: ElementTree.Element) -> int:
    step, octave = pitch.findtext("step", ""), pitch.findtext("octave", "")
    alter = round(float(pitch.findtext("alter", "0")))
    return 12 * (int(octave) + 1) + SEMITONES[step] + alter
