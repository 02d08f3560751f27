"""Four-part pieces from compressed MusicXML (.mxl), as far as a grid of 16ths needs it.

An .mxl file is a zip archive of one MusicXML document. The package music21 carries 408 of Bach's
chorales in this form. Importing music21 takes seconds and reads its settings; its files need
neither, so the package is only located.
"""

from __future__ import annotations

import importlib.util
import math
import xml.etree.ElementTree as ElementTree
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np

from triptych.domains.music.chorales import N_VOICES, SILENT, STEPS_PER_QUARTER, Grid
from triptych.errors import UserError

SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


def music21_files() -> list[Path]:
    """List the .mxl files of Bach's chorales inside the installed music21, by file name.

    Raises UserError where the package is not installed.
    """
    found = importlib.util.find_spec("music21")
    folders = list(found.submodule_search_locations or []) if found else []
    files = sorted(
        (path for folder in folders for path in Path(folder, "corpus", "bach").glob("*.mxl")),
        key=lambda path: path.name,
    )
    if not files:
        raise UserError(
            "The chorales come with the package music21, which is not installed here: "
            "pip install 'triptych[demo]'."
        )
    return files


def read_mxl(path: Path) -> Grid | None:
    """Read a piece of four parts as a grid; None for a piece with another number of parts.

    The first note of a part in each step counts: a second voice or the rest of a chord in one part
    fills in only where the part would be silent. Ties need no care, since the grid holds what
    sounds. A pickup is as long as it is written, and no repeat is played twice.

    Raises UserError for a damaged file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            scores = [
                name
                for name in archive.namelist()
                if name.endswith((".xml", ".musicxml")) and not name.startswith("META-INF/")
            ]
            root = ElementTree.fromstring(archive.read(scores[0]))
        return _read_score(root)
    # A damaged archive or document raises any of a dozen types; the file is what matters.
    except Exception as error:
        raise UserError(f"{path} is not a MusicXML file that can be read ({error!r}).") from error


def _read_score(root: ElementTree.Element) -> Grid | None:
    parts = root.findall("part")
    if len(parts) != N_VOICES:
        return None
    readers = [_Part(part) for part in parts]
    n_measures = max(len(reader.lengths) for reader in readers)
    start = Fraction(0)
    starts = []
    for number in range(n_measures):
        starts.append(start)
        # The longest part decides, so that one incomplete measure does not shift a voice.
        start += max(r.lengths[number] for r in readers if number < len(r.lengths))
    grid = np.full((math.ceil(start * STEPS_PER_QUARTER), N_VOICES), SILENT, dtype=np.int64)
    for voice, reader in enumerate(readers):
        for measure, onset, duration, pitch in reader.notes:
            first = (starts[measure] + onset) * STEPS_PER_QUARTER
            stop = first + duration * STEPS_PER_QUARTER
            cells = grid[math.ceil(first) : math.ceil(stop), voice]
            cells[cells == SILENT] = pitch
    return grid


class _Part:
    """One part: the length of each measure (quarters) and its notes as written.

    notes: (measure, onset in the measure in quarters, duration in quarters, sounding pitch).
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
