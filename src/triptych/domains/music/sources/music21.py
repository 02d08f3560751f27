"""Bach's four-part chorales inside the package music21: read, and split by tune.

Importing music21 takes seconds and reads its user settings. Its files need neither, so the package
is only located, and its compressed MusicXML (.mxl, a zip archive of one document) is read here, as
far as a grid of sixteenths needs it.
"""

import functools
import importlib.util
import logging
import math
import xml.etree.ElementTree as ElementTree
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np

from triptych.domains.music.sources.base import (
    Piece,
    PieceSource,
    Split,
    check_shares,
    require_pieces,
    split_of,
    warn_of_skipped,
)
from triptych.domains.music.tokenizers.chorales import (
    N_VOICES,
    SILENT,
    STEPS_PER_QUARTER,
    ChoraleTokenizer,
    Grid,
    in_range,
)
from triptych.errors import UserError

_LOG = logging.getLogger(__name__)

SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
PHRASE = 8
"""Length of the compared runs of a melody, in intervals: about a line of a hymn."""
MIN_SHARED = 0.4
"""Share of the shorter melody's runs at which two chorales have the same tune.

Among music21's 364 chorales, most pairs that share a run lie below 0.2, and most settings of one
hymn above 0.5. At 0.4 there are 234 tunes, the most frequent with ten settings.
"""


@dataclass(frozen=True)
class Music21Chorales(PieceSource):
    """Bach's four-part chorales in music21's package, on a grid of sixteenths; no download.

    All harmonisations of a tune, in any key, and copies of a chorale are in one split, so that no
    validation piece has a soprano known from training. The hash of the first file name of a tune
    decides its split.
    """

    validation_share: float = 0.1
    """Share of the tunes held out for validation, 0 to 1."""
    test_share: float = 0.1
    """Share of the tunes held out for the test, 0 to 1."""

    tokenizer: ClassVar[ChoraleTokenizer] = ChoraleTokenizer()

    def __post_init__(self) -> None:
        """Raise ValueError for impossible shares."""
        check_shares(self.validation_share, self.test_share)

    def load(self, split: Split) -> list[Piece]:
        """Read one split; raises UserError where music21 is not installed."""
        pieces, tunes = _all_chorales()
        chosen: list[int] = []
        for tune in tunes:
            key = min(pieces[index].name for index in tune).encode()
            shares = {"validation_share": self.validation_share, "test_share": self.test_share}
            if split_of(key, **shares) == split:
                chosen += tune
        found = [pieces[index] for index in sorted(chosen)]
        return require_pieces(found, split, "music21's chorales")


@functools.cache
def _all_chorales() -> tuple[list[Piece], list[list[int]]]:
    """Read all chorales by file name, and group their indices by tune; once per process."""
    pieces, skipped, n_other = [], [], 0
    files = music21_files()
    for path in files:
        try:
            grid = read_mxl(path)
        except UserError as error:
            skipped.append(str(error))
            continue
        if grid is None:
            n_other += 1
        elif not in_range(grid):
            skipped.append(f"{path.name} leaves the range of the voices")
        else:
            pieces.append(Piece(path.stem, grid))
    _LOG.info("music21: %d chorales; %d files do not have four parts", len(pieces), n_other)
    warn_of_skipped("music21's chorales", skipped, len(files))
    return pieces, group_by_tune([piece.content for piece in pieces])


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
    return sorted(files, key=lambda path: path.name)


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


def group_by_tune(grids: list[Grid]) -> list[list[int]]:
    """Group the indices of pieces with one tune; groups and their members in rising order."""
    melodies = [melody_runs(grid) for grid in grids]
    group = list(range(len(grids)))  # smallest index of a piece's group
    holders: dict[tuple[int, ...], list[int]] = defaultdict(list)
    shared: Counter[tuple[int, int]] = Counter()
    for second, melody in enumerate(melodies):
        for run in melody:
            shared.update((first, second) for first in holders[run])
            holders[run].append(second)
    for (first, second), count in shared.items():
        if count >= MIN_SHARED * min(len(melodies[first]), len(melodies[second])):
            low, high = sorted((group[first], group[second]))
            group = [low if number == high else number for number in group]
    members: dict[int, list[int]] = defaultdict(list)
    for index, number in enumerate(group):
        members[number].append(index)
    return list(members.values())


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
            root = ElementTree.fromstring(archive.read(documents[0]))
        return _read_parts(root.findall("part"))
    # A damaged archive or document raises any of a dozen types.
    except Exception as error:
        raise UserError(f"{path} is not a MusicXML file that can be read ({error!r})") from error


def _read_parts(parts: list[ElementTree.Element]) -> Grid | None:
    if len(parts) != N_VOICES:
        return None
    readers = [_Part(part) for part in parts]
    starts = [Fraction(0)]  # of each measure, in quarters
    for number in range(max(len(reader.lengths) for reader in readers)):
        # The longest part decides, so that an incomplete measure does not shift a voice.
        length = max(r.lengths[number] for r in readers if number < len(r.lengths))
        starts.append(starts[-1] + length)
    n_steps = math.ceil(starts[-1] * STEPS_PER_QUARTER)
    grid = np.full((n_steps, N_VOICES), SILENT, dtype=np.int64)
    for voice, reader in enumerate(readers):
        for measure, onset, duration, pitch in reader.notes:
            first = (starts[measure] + onset) * STEPS_PER_QUARTER
            stop = first + duration * STEPS_PER_QUARTER
            cells = grid[math.ceil(first) : math.ceil(stop), voice]
            cells[cells == SILENT] = pitch
    return grid


class _Part:
    """One part of a score, times in quarters.

    lengths: of each measure. notes: (measure, onset in the measure, duration, sounding MIDI pitch).
    """

    def __init__(self, part: ElementTree.Element) -> None:
        self.lengths: list[Fraction] = []
        self.notes: list[tuple[int, Fraction, Fraction, int]] = []
        self._divisions = 1
        self._transposition = 0
        for number, measure in enumerate(part.findall("measure")):
            self._read_measure(number, measure)

    def _read_measure(self, number: int, measure: ElementTree.Element) -> None:
        now = end = onset = Fraction(0)
        for element in measure:
            if element.tag == "attributes":
                self._read_attributes(element)
            elif element.tag in ("backup", "forward"):
                step = self._duration(element)
                now += step if element.tag == "forward" else -step
            elif element.tag == "note" and element.find("grace") is None:
                duration = self._duration(element)
                if element.find("chord") is None:
                    onset = now
                    now += duration
                pitch = element.find("pitch")
                if pitch is not None:
                    sounding = _midi_pitch(pitch) + self._transposition
                    self.notes.append((number, onset, duration, sounding))
            end = max(end, now)
        self.lengths.append(end)

    def _read_attributes(self, attributes: ElementTree.Element) -> None:
        self._divisions = int(attributes.findtext("divisions", str(self._divisions)))
        transpose = attributes.find("transpose")
        if transpose is not None:
            octaves = int(transpose.findtext("octave-change", "0"))
            self._transposition = int(transpose.findtext("chromatic", "0")) + 12 * octaves

    def _duration(self, element: ElementTree.Element) -> Fraction:
        return Fraction(element.findtext("duration", "0")) / self._divisions


def _midi_pitch(pitch: ElementTree.Element) -> int:
    step, octave = pitch.findtext("step", ""), pitch.findtext("octave", "")
    alter = round(float(pitch.findtext("alter", "0")))
    return 12 * (int(octave) + 1) + SEMITONES[step] + alter
