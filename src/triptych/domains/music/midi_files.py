"""The files of a folder of MIDI, at any depth and in archives, and what a csv says of them."""

import csv
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from triptych.domains.music.midi import MAX_BYTES, MIDI_SUFFIXES
from triptych.errors import UserError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


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
            if not file or not split:
                raise UserError(
                    f"{name} has a row without {'split' if file else 'midi_filename'}: "
                    f"{', '.join(filter(None, list(row.values())[:3])) or 'an empty one'}; "
                    "is it cut?"
                )
            split = "validation" if split == "valid" else split
            if split not in SPLITS:
                raise UserError(
                    f"{name} puts {file} into the split {split!r}; expected one of "
                    f"{', '.join(SPLITS)}."
                )
            if table.setdefault(file, split) != split:
                raise UserError(f"{name} puts {file} into {table[file]} and into {split}.")
    return table


def row_of(name: str, table: dict[str, Split]) -> str | None:
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
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path} is not an archive that can be read ({error}).") from error
