"""Where music comes from: chorales without a download, the JSB chorales, any folder of MIDI files.

A source of your own is a frozen dataclass below `PieceSource`, named in the YAML by its class path.
Pieces are split whole, before anything is varied or cut into windows.
"""

import functools
import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

from triptych.domains.music import melodies
from triptych.domains.music.chorales import in_range, read_jsb
from triptych.domains.music.events import encode_notes, reference_notes
from triptych.domains.music.midi import parse_midi
from triptych.domains.music.midi_files import (
    SPLITS,
    Split,
    midi_contents,
    need_directory,
    read_split_table,
    row_of,
)
from triptych.domains.music.musicxml import music21_files, read_mxl
from triptych.domains.music.representation import (
    ChoraleGrid,
    PerformanceEvents,
    Piece,
    Representation,
)
from triptych.errors import UserError
from triptych.training.held_out import split_by_hash

_LOG = logging.getLogger(__name__)


class PieceSource(ABC):
    """A data set of pieces in one representation; subclasses are frozen dataclasses."""

    representation: ClassVar[Representation]
    """How its pieces are written as tokens."""

    @abstractmethod
    def load(self, split: Split) -> list[Piece]:
        """Read the pieces of one split, in an order that depends on nothing but the data.

        Raises UserError where files are missing or nothing is left. A damaged piece among others
        is skipped, counted and named in a warning.
        """

    def load_all(self) -> list[Piece]:
        """Read every piece there is, whatever its split."""
        return [piece for split in SPLITS for piece in self.load(split)]


@dataclass(frozen=True)
class Music21Chorales(PieceSource):
    """Bach's four-part chorales inside music21's package, on a grid of 16ths; nothing to download.

    Copies of a chorale and other harmonisations of the same tune (in any key) stay together in one
    split; which one, the hash of the first of their file names decides.
    """

    validation: float = 0.1
    """Share of the tunes held out for validation, 0 to 1."""
    test: float = 0.1
    """Share of the tunes held out for the test, 0 to 1."""

    representation: ClassVar[Representation] = ChoraleGrid()

    def __post_init__(self) -> None:
        check_shares(self.validation, self.test)

    def load(self, split: Split) -> list[Piece]:
        """Read one split; UserError where music21 is not installed."""
        pieces, groups = _music21_chorales()
        chosen = []
        for group in groups:
            key = min(pieces[index].name for index in group).encode()
            if share_of(key, validation=self.validation, test=self.test) == split:
                chosen += group
        return _not_empty([pieces[index] for index in sorted(chosen)], split, "music21's chorales")


@functools.cache
def _music21_chorales() -> tuple[list[Piece], list[list[int]]]:
    """Read all chorales once a process, by file name, and group those of one tune."""
    pieces = []
    other_parts: list[str] = []
    skipped: list[str] = []
    files = music21_files()
    for path in files:
        try:
            grid = read_mxl(path)
        except UserError as error:
            skipped.append(str(error))
            continue
        if grid is None:
            other_parts.append(path.name)
        elif not in_range(grid):
            skipped.append(f"{path.name} leaves the range of the voices")
        else:
            pieces.append(Piece(path.stem, grid))
    _LOG.info(
        "music21: %d chorales; %d of %d files have not four parts",
        len(pieces), len(other_parts), len(files),
    )  # fmt: skip
    warn_of_skipped("music21's chorales", skipped, len(files))
    return pieces, melodies.group([piece.content for piece in pieces])


@dataclass(frozen=True)
class JSBChorales(PieceSource):
    """The JSB chorales in the split of Boulanger-Lewandowski (2012): 229, 76 and 77 pieces."""

    directory: str
    """Folder with Jsb16thSeparated.json.gz."""

    representation: ClassVar[Representation] = ChoraleGrid()

    def load(self, split: Split) -> list[Piece]:
        """Read one split of the file."""
        path = Path(self.directory).expanduser() / "Jsb16thSeparated.json.gz"
        if not path.is_file():
            raise UserError(f"JSBChorales directory: {path} does not exist.")
        grids = read_jsb(path)[split]
        return _not_empty(
            [Piece(f"jsb-{split}-{number:03d}", grid) for number, grid in enumerate(grids)],
            split,
            str(path),
        )


@dataclass(frozen=True)
class MidiFolder(PieceSource):
    """Any folder of MIDI files, as performance events; .tar.gz archives in it are read too.

    A .csv with the columns midi_filename and split (as MAESTRO has) beside the files or inside the
    archive decides the split. Without one the hash of a file's content does, so that equal files
    never lie in two splits, names do not matter and a new file moves no other.
    """

    directory: str
    """Folder of .mid and .midi files at any depth, or a .tar.gz of them."""
    validation: float = 0.1
    """Share of the files held out for validation where no csv says so, 0 to 1."""
    test: float = 0.1
    """Share of the files held out for the test where no csv says so, 0 to 1."""
    limit: int | None = None
    """Most files read per split, by name; null for all."""

    representation: ClassVar[Representation] = PerformanceEvents()

    def __post_init__(self) -> None:
        check_shares(self.validation, self.test)
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1 file or null, got {self.limit}")

    def load(self, split: Split) -> list[Piece]:
        """Read and parse one split; other splits' files are not parsed."""
        root = need_directory(self.directory)
        table = read_split_table(root)
        found: set[str] = set()
        unnamed: list[str] = []
        n_seen = 0

        def of_split() -> Iterator[tuple[str, bytes]]:
            nonlocal n_seen
            for name, content in midi_contents(root):
                n_seen += 1
                if table is None:
                    key = hashlib.sha256(content).digest()
                    own = share_of(key, validation=self.validation, test=self.test)
                elif (row := row_of(name, table)) is None:
                    unnamed.append(name)
                    continue
                else:
                    found.add(row)
                    own = table[row]
                if own == split:
                    yield name, content

        pieces, skipped = self._parsed(of_split(), self.limit)
        if unnamed:
            _LOG.warning(
                "%s: %d MIDI files are in no split, the csv does not name them; the first is %s",
                self.directory, len(unnamed), unnamed[0],
            )  # fmt: skip
        if table is not None and len(found) < len(table):
            missing = sorted(set(table) - found)
            _LOG.warning(
                "%s: the csv names %d files that are not there, the first is %s",
                self.directory, len(missing), missing[0],
            )  # fmt: skip
        if not pieces:
            raise UserError(
                f"{self.directory} gives no piece for the split {split}: "
                + self._why_empty(n_seen, skipped, by_csv=table is not None)
            )
        return pieces

    def _why_empty(self, n_seen: int, skipped: list[str], *, by_csv: bool) -> str:
        """What a split without pieces holds, and what would fill it."""
        if skipped:
            return f"none of the {len(skipped)} MIDI files in it can be used. {skipped[0]}"
        if by_csv:
            return f"none of the {n_seen} MIDI files falls into it, by its csv."
        return (
            f"none of the {n_seen} MIDI files falls into it, by the hash of their content "
            f"(validation {self.validation:g}, test {self.test:g} of all); give more files, larger "
            "shares, or a csv with the columns midi_filename and split."
        )

    def load_all(self) -> list[Piece]:
        """Read every file there is, whatever a csv or the limit say."""
        root = need_directory(self.directory)
        pieces, skipped = self._parsed(midi_contents(root), None)
        if not pieces:
            raise UserError(
                f"{self.directory} holds {len(skipped)} MIDI files and none that can be used"
                + (f". {skipped[0]}" if skipped else ".")
            )
        return pieces

    def _parsed(
        self, files: Iterable[tuple[str, bytes]], limit: int | None
    ) -> tuple[list[Piece], list[str]]:
        """The pieces of these files, `limit` at most, and why some could not be used."""
        pieces: list[Piece] = []
        skipped: list[str] = []
        for name, content in files:
            if limit is not None and len(pieces) >= limit:
                continue
            try:
                notes = reference_notes(parse_midi(content, name=name))
                encode_notes(notes)  # raises for too long a piece here, not in the middle of a run
            except (UserError, ValueError) as error:
                skipped.append(str(error))
                continue
            if len(notes):
                pieces.append(Piece(name, notes))
            else:
                skipped.append(f"{name} holds drums only.")
        warn_of_skipped(self.directory, skipped, len(pieces) + len(skipped))
        return pieces, skipped


def check_shares(validation: float, test: float) -> None:
    """Raise ValueError where nothing would be left to train on."""
    if not (0 < validation < 1 and 0 <= test < 1 - validation):
        raise ValueError(
            f"validation {validation} and test {test} must be shares that leave pieces to train on"
        )


def share_of(key: bytes, *, validation: float, test: float) -> Split:
    """Put a key into a split by its hash: the same on every machine, whatever else is there."""
    return cast(Split, split_by_hash(key, {"test": test, "validation": validation}))


def warn_of_skipped(what: str, skipped: list[str], n_files: int) -> None:
    """Say how many files could not be used and why, the first few by name."""
    if skipped:
        shown = " ".join(skipped[:5]) + (" ..." if len(skipped) > 5 else "")
        _LOG.warning("%s: skipped %d of %d files: %s", what, len(skipped), n_files, shown)


def _not_empty(pieces: list[Piece], split: Split, what: str) -> list[Piece]:
    if not pieces:
        raise UserError(f"{what} gives no piece for the split {split}.")
    return pieces
