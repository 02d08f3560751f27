"""String quartets and a trio sonata inside the package music21, which ships them as MusicXML."""

import functools
from dataclasses import dataclass
from pathlib import Path

from triptych.domains.music.midi import ParsedMidi
from triptych.domains.music.musicxml import read_musicxml, score_to_midi
from triptych.domains.music.sources.base import HashedSource, Piece
from triptych.domains.music.sources.music21 import corpus_files
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.errors import UserError
from triptych.files.reading import read_in_order
from triptych.files.splits import warn_of_skipped
from triptych.types import FractionBelowOne

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
    file: a movement, or a whole work of some movements. All movements of a work are in one split,
    which the hash of its name decides.
    """

    validation_share: FractionBelowOne = 0.1
    """Share of the works held out for validation, 0 to 1."""
    test_share: FractionBelowOne = 0.1
    """Share of the works held out for the test, 0 to 1."""

    def load(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        return [
            Piece(score.name, tokenizer.from_midi(score))
            for score in all_ensembles()
            if self.split_of(_work(score.name).encode()) == split
        ]


def _work(name: str) -> str:
    """Return the composer and work of a piece named composer/work/movement or composer/work."""
    return "/".join(name.split("/")[:2])


@functools.cache
def all_ensembles() -> list[ParsedMidi]:
    """Read the scores of all ensembles, by composer and path; once per process.

    Raises UserError where music21 is not installed.
    """
    paths = [path for composer in COMPOSERS for path in corpus_files(composer)]
    read = list(read_in_order(_read, paths, count=len(paths), what="read scores"))
    skipped = [reason for reason in read if isinstance(reason, str)]
    warn_of_skipped("music21's scores", skipped, len(paths))
    return [score for score in read if isinstance(score, ParsedMidi)]


def _read(path: Path) -> ParsedMidi | str | None:
    """Return what `read_ensemble` returns, or the reason why a file cannot be read."""
    name = path.as_posix().partition("/corpus/")[2].removesuffix(path.suffix)
    try:
        return read_ensemble(path, name=name)
    except UserError as error:
        return str(error)


def read_ensemble(path: Path, *, name: str) -> ParsedMidi | None:
    """Read a score; None where a part is for another instrument, or where there are too few."""
    parts = read_musicxml(path)
    programs = [
        next((PROGRAMS[word] for word in _words(part.name) if word in PROGRAMS), None)
        for part in parts
    ]
    known = [program for program in programs if program is not None]
    if len(parts) < LEAST_PARTS or len(known) < len(parts):
        return None
    return score_to_midi(parts, known, name=name)


def _words(name: str) -> list[str]:
    return name.lower().replace(".", " ").split()
