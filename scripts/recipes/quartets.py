"""String quartets and a trio sonata in the package music21, as MIDI files.

All scores of the COMPOSERS that have three or more parts, all of them strings. Writes
COMPOSER/WORK/MOVEMENT.mid or COMPOSER/WORK.mid: a movement, or a whole work of some movements, and
splits.csv with the columns midi_filename and split. All movements of a work are in one split. Needs
the extra demo. The music is in the public domain; music21 says under which licence its encodings
stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from triptych.domains.music.musicxml import parse_musicxml
from triptych.domains.music.notes import Score

from ._music21 import Shares, corpus_files, files_of, read_all

COMPOSERS = ("beethoven", "corelli", "haydn", "mozart", "schumann_robert")
PROGRAMS = {
    "violin": 40, "violino": 40, "viola": 41, "violoncello": 42, "cello": 42, "violone": 42,
}  # fmt: skip
"""Program of General MIDI by a word of a part's name; the programs that the files name are often
those of other instruments."""
LEAST_PARTS = 3


@dataclass(frozen=True, kw_only=True)
class Options(Shares):
    """What is held out."""


def main(options: Options) -> Iterator[tuple[str, list[str] | bytes]]:
    """Yield the files."""
    yield from files_of(
        (score.name, options.split_of("/".join(score.name.split("/")[:2])), score)
        for score in all_ensembles()
    )


def all_ensembles() -> list[Score]:
    """Read all ensembles by composer and path; UserError without music21."""
    return read_all(read_ensemble, [path for name in COMPOSERS for path in corpus_files(name)])


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
