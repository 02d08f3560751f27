"""Files of a folder and of the archives in it."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from triptych.domains.music.midi import MAX_BYTES
from triptych.errors import UserError

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz")


class StoredFile(NamedTuple):
    """File in a folder or in an archive."""

    name: str
    """Relative to the folder or archive, with forward slashes."""
    path: Path
    """Of the file, or of the archive that holds it."""
    member: tarfile.TarInfo | None = None


class Content(NamedTuple):
    """Content of a file that is yet to be read, or that comes from an archive."""

    name: str
    source: Path | bytes

    def read(self) -> bytes:
        """Return the bytes of the file: of one larger than MAX_BYTES one byte more, so that
        `parse_midi` refuses it."""
        if isinstance(self.source, bytes):
            return self.source
        with _reading(self.source), self.source.open("rb") as file:
            return file.read(MAX_BYTES + 1)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise UserError in place of the errors of a damaged file or archive."""
    try:
        yield
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path} is not a file or archive that can be read: {error}") from error


def list_files(root: Path, suffixes: tuple[str, ...]) -> list[StoredFile]:
    """Return the files with these suffixes in a folder and its archives, or in an archive, by name.

    Raises UserError for a damaged archive.
    """
    paths = [(root.name, root)]
    if root.is_dir():
        # By name, since the order of file systems differs.
        paths = sorted(
            (path.relative_to(root).as_posix(), path)
            for path in root.rglob("*")
            if path.is_file() and path.name.lower().endswith((*suffixes, *ARCHIVE_SUFFIXES))
        )
    files = []
    for name, path in paths:
        if path.name.lower().endswith(suffixes):
            files.append(StoredFile(name, path))
            continue
        with _reading(path), tarfile.open(path) as archive:
            members = sorted(archive.getmembers(), key=lambda member: member.name)
        # A link could point outside of the archive.
        members = [member for member in members if member.isfile()]
        named = [member for member in members if member.name.lower().endswith(suffixes)]
        files += [StoredFile(member.name, path, member) for member in named]
    return files


def contents(files: Iterable[StoredFile]) -> Iterator[Content]:
    """Yield the content of each file; UserError for a damaged archive."""
    for path, group in groupby(files, key=lambda file: file.path):
        first, *others = group
        if first.member is None:
            yield Content(first.name, path)
            continue
        with _reading(path), tarfile.open(path) as archive:
            for file in (first, *others):
                assert file.member is not None
                member = archive.extractfile(file.member)
                assert member is not None
                yield Content(file.name, member.read(MAX_BYTES + 1))
