"""A folder of MIDI files and archives, such as MAESTRO."""

import csv
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple
from zipfile import BadZipFile, ZipFile

from triptych.domains.music.midi import (
    MAX_BYTES,
    MUSIC_SUFFIXES,
    left_out_of,
    parse_midi,
    read_content,
)
from triptych.domains.music.sources.base import LOG, SPLITS, Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.errors import UserError
from triptych.files.folders import named, visible_files
from triptych.files.reading import read_in_order
from triptych.files.splits import ALL, check_shares, split_by_hash, warn_of_skipped
from triptych.types import FractionBelowOne, PositiveInt

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".zip")
ARCHIVE_ERRORS = (
    OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError, BadZipFile,
    RuntimeError, NotImplementedError,  # of a zip with a password, or packed in an unknown way
)  # fmt: skip


class StoredFile(NamedTuple):
    """File of a folder or of an archive."""

    name: str
    """Relative to the folder or archive, with forward slashes."""
    path: Path

    def read(self) -> bytes:
        return read_content(self.path, self.name)


@contextmanager
def stored_files(root: Path, suffixes: tuple[str, ...]) -> Iterator[list[StoredFile]]:
    """Yield the files with these suffixes in a folder and its archives, or in an archive, by name.

    What archives hold is unpacked until the block ends. Raises UserError for a damaged archive.
    """
    paths = [(root.name, root)]
    if root.is_dir():
        # By name, since the order of file systems differs.
        paths = sorted(
            (path.relative_to(root).as_posix(), path)
            for path in visible_files(root)
            if path.name.lower().endswith((*suffixes, *ARCHIVE_SUFFIXES))
        )
    files = []
    with TemporaryDirectory(prefix="triptych-") as folder:
        for name, path in paths:
            if path.name.lower().endswith(suffixes):
                files.append(StoredFile(name, path))
                continue
            members: list[StoredFile] = []
            try:
                for member, content in _members(path, suffixes):
                    place = len(files) + len(members)
                    unpacked = Path(folder, f"{place}{PurePosixPath(member).suffix}")
                    unpacked.write_bytes(content)
                    members.append(StoredFile(member, unpacked))
            except ARCHIVE_ERRORS as error:
                raise UserError(
                    f"{path} is not a file or archive that can be read: {error}"
                ) from error
            files += sorted(members)
        yield files


def _members(path: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files in an archive, as `read_content` cuts them.

    Links could point outside of the archive, and hidden files are no music.
    """

    def is_wanted(name: str) -> bool:
        hidden = any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)
        return name.lower().endswith(suffixes) and not hidden

    if path.name.lower().endswith(".zip"):
        with ZipFile(path) as zipped:
            for info in zipped.infolist():
                if is_wanted(info.filename) and not info.is_dir():
                    with zipped.open(info) as file:
                        yield info.filename, file.read(MAX_BYTES + 1)
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if is_wanted(member.name) and member.isfile():
                packed = archive.extractfile(member)
                yield member.name, packed.read(MAX_BYTES + 1) if packed else b""


@dataclass(frozen=True)
class MidiFolder(PieceSource):
    """Folder of MIDI files; .zip and .tar.gz archives in it are read too.

    A .csv with the columns midi_filename and split, as MAESTRO has, decides the split; it lies next
    to the files or inside the archive. Without one the hash of a file's content decides, so that
    equal files never lie in two splits, names do not matter and a new file moves no other.
    """

    directory: str
    """Folder of .mid, .midi, .kar and .rmi files at any depth, or a .zip or .tar.gz of them."""
    limit: PositiveInt | None = None
    """Largest number of files per split, the first by name; null for all."""
    validation_share: FractionBelowOne = field(default=0.1, kw_only=True)
    """Share of the files held out for validation, 0 to 1, where no csv gives the split."""
    test_share: FractionBelowOne = field(default=0.1, kw_only=True)
    """Share of the files held out for the test, 0 to 1, in the same way."""

    trains_baselines: ClassVar[bool] = False  # reading a folder takes minutes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.validation_share, self.test_share)

    def load(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        return [*self.stream(ALL, tokenizer)] if split == ALL else super().load(split, tokenizer)

    def stream(self, split: str, tokenizer: MusicTokenizer) -> Iterator[Piece]:
        """Yield the pieces of a split, or for `all` every file, whatever csv and limit say.

        Files of other splits are not parsed.
        """
        root = Path(self.directory).expanduser()
        if not root.exists():
            raise UserError(f"MidiFolder directory: {self.directory} does not exist")
        table = {} if split == ALL else read_split_table(root)
        limit = None if split == ALL else self.limit
        with stored_files(root, MUSIC_SUFFIXES) as files:
            rows = {file.name: row_of(file.name, table) for file in files}
            chosen = [file for file in files if not table or table.get(rows[file.name]) == split]
            by_hash = not table and split != ALL
            read = partial(self._read, split=split if by_hash else None, tokenizer=tokenizer)
            pieces = read_in_order(read, chosen, count=len(chosen), what="read MIDI files")
            n_pieces, skipped, damaged = 0, [], []
            with closing(pieces):  # ends the workers where the reading is given up
                for file, piece in zip(chosen, pieces, strict=True):
                    if isinstance(piece, str):
                        skipped.append(piece)
                    elif piece is not None:
                        n_pieces += 1
                        content, left_out = piece
                        damaged += [f"{file.name}: {left_out}"] * bool(left_out)
                        yield Piece(file.name, content)
                        if n_pieces == limit:
                            break
        warn_of_skipped(f"{self.directory}, {split}", skipped, n_pieces + len(skipped))
        if damaged:
            reasons = named(damaged)
            LOG.warning("%s, %s: damage in %d files: %s", root, split, len(damaged), reasons)
        if table:
            unlisted = [name for name, row in rows.items() if not row]
            missing = sorted(table.keys() - rows.values())
            for names, what in (
                (unlisted, "MIDI files are in no split of the csv"),
                (missing, "files of the csv do not exist"),
            ):
                if names:
                    LOG.warning("%s: %d %s, such as %s", root, len(names), what, names[:1])
        if not n_pieces:
            shares = f"validation_share {self.validation_share:g}, test_share {self.test_share:g}"
            rule = "the csv" if table else f"the hash of the content ({shares})"
            reason = f"{rule} puts none of the {len(rows)} MIDI files into it"
            if skipped:
                reason = f"{len(skipped)} MIDI files cannot be used; {skipped[0]}"
            raise UserError(f"{self.directory} gives no piece for the split {split}: {reason}")

    def _read(self, file: StoredFile, *, split: str | None, tokenizer: MusicTokenizer) -> Any:
        """Return the content of a file and what is left out of it, both in a tuple.

        Why it cannot be used, as text; None for a file of another split.
        """
        data = file.read()
        shares = {"test": self.test_share, "validation": self.validation_share}
        if split is not None and split_by_hash(hashlib.sha256(data).digest(), shares) != split:
            return None
        try:
            score = parse_midi(data, name=file.name)
            return tokenizer.from_midi(score), left_out_of(score)
        except UserError as error:
            return str(error)


def read_split_table(root: Path) -> dict[str, str]:
    """Read the split of each file from the csv in or next to a folder or archive.

    Empty where no csv has the columns midi_filename and split. Raises UserError for another split
    name, for a file in two splits and for a csv that is cut off.
    """
    table: dict[str, str] = {}
    beside = sorted(root.parent.glob("*.csv")) if root.is_file() else []
    with stored_files(root, (".csv",)) as files:
        files += [StoredFile(path.name, path) for path in beside]
        contents = [(file.name, file.read()) for file in files]
    for name, content in contents:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig", errors="replace")))
        if not {"midi_filename", "split"} <= set(reader.fieldnames or ()):
            continue  # a csv about other things
        for row in reader:
            file, split = row["midi_filename"], row["split"]
            split = "validation" if split == "valid" else split
            if not file or split not in SPLITS:
                raise UserError(
                    f"{name} has the row {list(row.values())[:3]}; expected a midi_filename and a "
                    f"split, one of {', '.join(SPLITS)}: is the file cut off?"
                )
            if table.setdefault(file, split) != split:
                raise UserError(f"{name} puts {file} into {table[file]} and into {split}")
    return table


def row_of(name: str, table: dict[str, str]) -> str:
    """Return the name by which the csv lists a file, which may omit the first folders; or ""."""
    parts = PurePosixPath(name).parts
    rows = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((row for row in rows if row in table), "")
