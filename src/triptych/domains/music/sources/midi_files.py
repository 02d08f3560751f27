"""MIDI files of a folder at any depth and in archives, and the csv that splits them."""

import csv
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import cast

from triptych.domains.music.midi import MAX_BYTES, MIDI_SUFFIXES
from triptych.domains.music.sources.base import SPLITS, Split
from triptych.errors import UserError

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz")


def midi_contents(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of every MIDI file in a folder, in its archives, or in an archive.

    Files come by name, relative to the folder or archive, with forward slashes. Of a file larger
    than MAX_BYTES one byte more is read, so that `parse_midi` refuses it. Raises UserError for a
    damaged archive.
    """
    yield from _walk(root, MIDI_SUFFIXES, limit=MAX_BYTES + 1)


def read_split_table(root: Path) -> dict[str, Split] | None:
    """Read the split of each file from the csv in or next to a folder or archive.

    Returns None where no csv has the columns midi_filename and split. Raises UserError for another
    split name, for a file in two splits and for a csv that is cut off.
    """
    folder = root if root.is_dir() else root.parent
    try:
        outside = {path.name: path.read_bytes() for path in sorted(folder.glob("*.csv"))}
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror or error}") from error
    # A csv about other things next to the files does not hide the table among them.
    return _split_table(outside.items()) or _split_table(_walk(root, (".csv",))) or None


def row_of(name: str, table: dict[str, Split]) -> str | None:
    """Return the name by which the csv lists a file; it may omit the first folders."""
    parts = PurePosixPath(name).parts
    for start in range(len(parts)):
        if (row := "/".join(parts[start:])) in table:
            return row
    return None


def _split_table(files: Iterable[tuple[str, bytes]]) -> dict[str, Split]:
    table: dict[str, Split] = {}
    for name, content in files:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig", errors="replace")))
        try:
            if not {"midi_filename", "split"} <= set(reader.fieldnames or ()):
                continue
            rows = list(reader)
        except csv.Error as error:
            raise UserError(f"{name} is no csv that can be read: {error}") from error
        for row in rows:
            file, split = row["midi_filename"], row["split"]
            if not file or not split:
                raise UserError(
                    f"{name} has a row without {'split' if file else 'midi_filename'}: "
                    f"{', '.join(filter(None, list(row.values())[:3])) or 'an empty one'}; "
                    "is the file cut off?"
                )
            split = "validation" if split == "valid" else split
            if split not in SPLITS:
                raise UserError(
                    f"{name} puts {file} into the split {split!r}; expected one of "
                    f"{', '.join(SPLITS)}"
                )
            if table.setdefault(file, cast(Split, split)) != split:
                raise UserError(f"{name} puts {file} into {table[file]} and into {split}")
    return table


def _walk(root: Path, suffixes: tuple[str, ...], *, limit: int = -1) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of files with these suffixes, by name; limit: bytes read, -1 for all."""
    if root.is_file():
        yield from _walk_archive(root, suffixes, limit=limit)
        return
    # By name, since the order of file systems differs.
    paths = sorted(
        (path.relative_to(root).as_posix(), path)
        for path in root.rglob("*")
        if path.is_file() and path.name.lower().endswith((*suffixes, *ARCHIVE_SUFFIXES))
    )
    for name, path in paths:
        if not path.name.lower().endswith(suffixes):
            yield from _walk_archive(path, suffixes, limit=limit)
            continue
        try:
            with path.open("rb") as file:
                yield name, file.read(limit)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def _walk_archive(
    path: Path, suffixes: tuple[str, ...], *, limit: int
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
                yield member.name, file.read(limit)
    except tarfile.ReadError as error:
        raise UserError(f"{path} is neither a folder nor a tar archive that is whole") from error
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path} is not an archive that can be read ({error})") from error
