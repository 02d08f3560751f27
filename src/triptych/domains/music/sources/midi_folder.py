"""A folder of MIDI files, such as MAESTRO, as piano performances."""

import csv
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar

from triptych.domains.music.midi import MAX_BYTES, MIDI_SUFFIXES, parse_midi
from triptych.domains.music.sources.base import LOG, SPLITS, HashedSource, Piece
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.sources import ALL, warn_of_skipped
from triptych.errors import UserError, at_least

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz")


@dataclass(frozen=True)
class MidiFolder(HashedSource):
    """Folder of MIDI files as performance events; .tar.gz archives in it are read too.

    A .csv with the columns midi_filename and split, as MAESTRO has, decides the split; it lies next
    to the files or inside the archive. Without one the hash of a file's content decides, so that
    equal files never lie in two splits, names do not matter and a new file moves no other.
    """

    directory: str
    """Folder of .mid and .midi files at any depth, or a .tar.gz of them."""
    validation_share: float = 0.1
    """Share of the files held out for validation where no csv gives the split, 0 to 1."""
    test_share: float = 0.1
    """Share of the files held out for the test where no csv gives the split, 0 to 1."""
    limit: int | None = None
    """Largest number of files per split, the first by name; null for all."""

    tokenizer: ClassVar[EventTokenizer] = EventTokenizer()
    trains_baselines: ClassVar[bool] = False  # reading a folder takes minutes

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "limit")

    def load(self, split: str) -> list[Piece]:
        """Read one split, or for `all` every file, whatever the csv and the limit say.

        Files of other splits are not parsed.
        """
        root = Path(self.directory).expanduser()
        if not root.exists():
            raise UserError(f"MidiFolder directory: {self.directory} does not exist")
        table = {} if split == ALL else read_split_table(root)
        limit = None if split == ALL else self.limit
        rows: dict[str, str] = {}  # name of a file -> its row in the csv, empty for none
        pieces: list[Piece] = []
        skipped: list[str] = []
        for name, content in file_contents(root, MIDI_SUFFIXES):
            rows[name] = row_of(name, table)
            if table:
                found = table.get(rows[name])
            else:
                found = self.split_of(hashlib.sha256(content).digest())
            if split not in (ALL, found) or len(pieces) == limit:
                continue
            try:
                notes = self.tokenizer.from_midi(parse_midi(content, name=name))
                pieces.append(Piece(name, notes))
            except UserError as error:
                skipped.append(str(error))
        warn_of_skipped(self.directory, skipped, len(pieces) + len(skipped))
        if table:
            unlisted = [name for name, row in rows.items() if not row]
            missing = sorted(table.keys() - rows.values())
            for names, what in (
                (unlisted, "MIDI files are in no split of the csv"),
                (missing, "files of the csv do not exist"),
            ):
                if names:
                    LOG.warning("%s: %d %s, such as %s", root, len(names), what, names[:1])
        if not pieces:
            shares = f"validation_share {self.validation_share:g}, test_share {self.test_share:g}"
            rule = "the csv" if table else f"the hash of the content ({shares})"
            reason = f"{rule} puts none of the {len(rows)} MIDI files into it"
            if skipped:
                reason = f"{len(skipped)} MIDI files cannot be used; {skipped[0]}"
            raise UserError(f"{self.directory} gives no piece for the split {split}: {reason}")
        return pieces

    def load_all(self) -> list[Piece]:
        return self.load(ALL)


def read_split_table(root: Path) -> dict[str, str]:
    """Read the split of each file from the csv in or next to a folder or archive.

    Empty where no csv has the columns midi_filename and split. Raises UserError for another split
    name, for a file in two splits and for a csv that is cut off.
    """
    table: dict[str, str] = {}
    files = [*file_contents(root, (".csv",))]
    if root.is_file():
        files += [(path.name, path.read_bytes()) for path in sorted(root.parent.glob("*.csv"))]
    for name, content in files:
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


def file_contents(root: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of files with these suffixes in a folder, its archives, or an archive.

    Files come by name, relative to the folder or archive, with forward slashes. Of a file larger
    than MAX_BYTES one byte more is read, so that `parse_midi` refuses it. Raises UserError for a
    damaged archive.
    """
    paths = [(root.name, root)]
    if root.is_dir():
        # By name, since the order of file systems differs.
        paths = sorted(
            (path.relative_to(root).as_posix(), path)
            for path in root.rglob("*")
            if path.is_file() and path.name.lower().endswith((*suffixes, *ARCHIVE_SUFFIXES))
        )
    for name, path in paths:
        try:
            if path.name.lower().endswith(suffixes):
                with path.open("rb") as plain:
                    yield name, plain.read(MAX_BYTES + 1)
                continue
            with tarfile.open(path) as archive:
                for member in sorted(archive.getmembers(), key=lambda member: member.name):
                    # A link could point outside of the archive.
                    if member.isfile() and member.name.lower().endswith(suffixes):
                        packed = archive.extractfile(member)
                        assert packed is not None
                        yield member.name, packed.read(MAX_BYTES + 1)
        except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
            raise UserError(f"{path} is not a file or archive that can be read: {error}") from error
