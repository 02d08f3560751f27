"""Where music comes from: chorales without a download, the JSB chorales, any folder of MIDI files.

A source of your own is a frozen dataclass below `PieceSource`, named in the YAML by its class path.
Pieces are split whole, before anything is varied or cut into windows.
"""

import csv
import functools
import hashlib
import io
import logging
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal, cast

from triptych.domains.music import melodies
from triptych.domains.music.cache import NotesCache
from triptych.domains.music.chorales import in_range, read_jsb
from triptych.domains.music.midi import MAX_BYTES, MIDI_SUFFIXES
from triptych.domains.music.musicxml import music21_files, read_mxl
from triptych.domains.music.representation import (
    ChoraleGrid,
    PerformanceEvents,
    Piece,
    Representation,
)
from triptych.errors import EmptySplitError, UserError
from triptych.training.held_out import split_by_hash

_LOG = logging.getLogger(__name__)

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


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

    def load_through(self, cache: NotesCache, split: Split) -> list[Piece]:
        """Do the same, with MIDI files out of a cache; other sources have no use for one."""
        return self.load(split)


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
    """Most files read per split, by name; null for all. MAESTRO's 962 train files take minutes
    the first time, see data.cache."""

    representation: ClassVar[Representation] = PerformanceEvents()

    def __post_init__(self) -> None:
        check_shares(self.validation, self.test)
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1 file or null, got {self.limit}")

    def load(self, split: Split) -> list[Piece]:
        """Read and parse one split; other splits' files are not parsed."""
        return self.load_through(NotesCache(None), split)

    def load_through(self, cache: NotesCache, split: Split) -> list[Piece]:
        """Read one split, parsing what the cache does not hold."""
        root = need_directory(self.directory)
        table = read_split_table(root)
        pieces: list[Piece] = []
        skipped: list[str] = []
        found: set[str] = set()
        unnamed: list[str] = []
        n_seen = n_files = 0
        for name, content in midi_contents(root):
            n_seen += 1
            if table is None:
                key = hashlib.sha256(content).digest()
                own = share_of(key, validation=self.validation, test=self.test)
            else:
                row = _row_of(name, table)
                if row is None:
                    unnamed.append(name)
                    continue
                found.add(row)
                own = table[row]
            if own != split or (self.limit is not None and len(pieces) >= self.limit):
                continue
            n_files += 1
            try:
                notes = cache.notes(content, name=name)
            except (UserError, ValueError) as error:
                skipped.append(str(error))
                continue
            if len(notes):
                pieces.append(Piece(name, notes))
            else:
                skipped.append(f"{name} holds drums only.")
        warn_of_skipped(self.directory, skipped, n_files)
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
        rule = "by the hash of its content" if table is None else "by the csv"
        shares = f" ({self.validation:g} of all are validation, {self.test:g} the test)"
        return _not_empty(
            pieces,
            split,
            self.directory,
            f" of its {n_seen} MIDI files {n_files} fall into it, {rule}"
            f"{shares if table is None else ''}, and {len(skipped)} of these cannot be used; give "
            f"more files{' or larger shares' if table is None else ''}, or a csv with the columns "
            "midi_filename and split.",
        )


def check_shares(validation: float, test: float) -> None:
    """Raise ValueError where nothing would be left to train on."""
    if not (0 < validation < 1 and 0 <= test < 1 - validation):
        raise ValueError(
            f"validation {validation} and test {test} must be shares that leave pieces to train on"
        )


def share_of(key: bytes, *, validation: float, test: float) -> Split:
    """Put a key into a split by its hash: the same on every machine, whatever else is there."""
    return cast(Split, split_by_hash(key, {"test": test, "validation": validation}))


def need_directory(directory: str) -> Path:
    """Give the folder or archive as a path; UserError where there is none."""
    root = Path(directory).expanduser()
    if not root.exists():
        raise UserError(f"MidiFolder directory: {directory} does not exist.")
    return root


def midi_contents(root: Path) -> Iterator[tuple[str, bytes]]:
    """Give (name, bytes) of every MIDI file in a folder, its archives, or an archive, by name.

    Names are relative to the folder or the archive, with forward slashes. A file over MAX_BYTES is
    given cut to one byte more, for `parse_midi` to refuse. Raises UserError for a damaged archive.
    """
    yield from _walk(root, MIDI_SUFFIXES, limit=MAX_BYTES + 1)


def read_split_table(root: Path) -> dict[str, Split] | None:
    """Read which split each file belongs to, by the csv in or beside the folder or archive.

    None where there is no csv with the columns midi_filename and split. Raises UserError for a
    split of another name, or for a file that stands in two.
    """
    folder = root if root.is_dir() else root.parent
    beside = ((path, path.read_bytes) for path in sorted(folder.glob("*.csv")))
    try:
        table = _split_table((path.name, read()) for path, read in beside)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror or error}.") from error
    # Another table beside the pieces does not hide the one among them.
    return table or _split_table(_walk(root, (".csv",), limit=None)) or None


def _split_table(files: Iterable[tuple[str, bytes]]) -> dict[str, Split]:
    table: dict[str, Split] = {}
    for name, content in files:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig", errors="replace")))
        try:
            if not {"midi_filename", "split"} <= set(reader.fieldnames or ()):
                continue
            rows = list(reader)
        except csv.Error as error:
            raise UserError(f"{name} is no csv that can be read: {error}.") from error
        for row in rows:
            file, split = row["midi_filename"], row["split"]
            split = "validation" if split == "valid" else split
            if split not in SPLITS:
                raise UserError(
                    f"{name} puts {file} into the split {split!r}; expected one of "
                    f"{', '.join(SPLITS)}."
                )
            if table.setdefault(file, split) != split:
                raise UserError(f"{name} puts {file} into {table[file]} and into {split}.")
    return table


def warn_of_skipped(what: str, skipped: list[str], n_files: int) -> None:
    """Say how many files could not be used and why, the first few by name."""
    if skipped:
        shown = " ".join(skipped[:5]) + (" ..." if len(skipped) > 5 else "")
        _LOG.warning("%s: skipped %d of %d files: %s", what, len(skipped), n_files, shown)


def _not_empty(pieces: list[Piece], split: Split, what: str, why: str = "") -> list[Piece]:
    if not pieces:
        raise EmptySplitError(
            f"{what} gives no piece for the split {split}{':' if why else '.'}{why}"
        )
    return pieces


def _row_of(name: str, table: dict[str, Split]) -> str | None:
    """Find a file in the csv, whose names may leave out folders on the way to it."""
    parts = PurePosixPath(name).parts
    for start in range(len(parts)):
        if (row := "/".join(parts[start:])) in table:
            return row
    return None


def _walk(
    root: Path, suffixes: tuple[str, ...], *, limit: int | None
) -> Iterator[tuple[str, bytes]]:
    """Read the files with these suffixes, by name; `limit` bytes of each at most."""
    if root.is_file():
        yield from _walk_archive(root, suffixes, limit=limit)
        return
    # By name, since file systems list in orders of their own.
    paths = sorted(
        (path.relative_to(root).as_posix(), path)
        for path in root.rglob("*")
        if path.is_file() and path.name.lower().endswith((*suffixes, ".tar.gz", ".tgz"))
    )
    for name, path in paths:
        if path.name.lower().endswith(suffixes):
            try:
                with path.open("rb") as file:
                    yield name, file.read(-1 if limit is None else limit)
            except OSError as error:
                raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
        else:
            yield from _walk_archive(path, suffixes, limit=limit)


def _walk_archive(
    path: Path, suffixes: tuple[str, ...], *, limit: int | None
) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path, "r:*") as archive:
            members = [
                member
                for member in archive.getmembers()
                # A link could point outside of the archive.
                if member.isfile() and member.name.lower().endswith(suffixes)
            ]
            for member in sorted(members, key=lambda member: member.name):
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file.read(-1 if limit is None else limit)
    except tarfile.ReadError as error:
        raise UserError(f"{path} is neither a folder nor a tar archive that is whole.") from error
    except (OSError, EOFError, tarfile.TarError) as error:
        raise UserError(f"{path} is not an archive that can be read ({error}).") from error
