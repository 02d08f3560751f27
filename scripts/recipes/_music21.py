"""Scores inside the package music21, and pieces of them as MIDI files with a table of splits.

Importing music21 takes seconds and reads its user settings. Its files need neither, so the package
is only located, and its MusicXML is read by the reader of this package.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from triptych.domains.music.midi import midi_bytes
from triptych.domains.music.musicxml import MUSICXML_SUFFIXES
from triptych.domains.music.notes import Score
from triptych.errors import UserError
from triptych.files.reading import read_in_order
from triptych.files.splits import check_shares, split_by_hash, warn_of_skipped
from triptych.types import Checked, FractionBelowOne

Read = TypeVar("Read")

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Shares(Checked):
    """What is held out."""

    validation_share: FractionBelowOne = 0.1
    """Share of the tunes or works held out for validation, 0 to 1."""
    test_share: FractionBelowOne = 0.1
    """Share of them held out for the test, 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.validation_share, self.test_share)

    def split_of(self, key: str) -> str:
        """Return the split of a key by its hash, equal on every machine and for any other keys."""
        shares = {"test": self.test_share, "validation": self.validation_share}
        return split_by_hash(key.encode(), shares)


def files_of(pieces: Iterable[tuple[str, str, Score]]) -> Iterator[tuple[str, list[str] | bytes]]:
    """Yield a MIDI file for each piece, of its name, split and score, and the table of splits."""
    rows = []
    for name, split, score in pieces:
        rows.append(f"{name}.mid,{split}")
        yield f"{name}.mid", midi_bytes(score)
    yield "splits.csv", ["midi_filename,split", *rows]


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


def read_all(read: Callable[[Path], Read | None], files: list[Path]) -> list[Read]:
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
