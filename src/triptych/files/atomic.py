"""Atomic writing of files: a reader sees the former content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from triptych.errors import UserError

TEMPORARY = ".unfinished"
"""Suffix of temporary files; their names begin with a dot."""


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing that replaces `path` when the block ends.

    The content is on disk before the rename. An exception in the block deletes the temporary file
    and leaves `path` unchanged. The folder is created if missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since a rename is atomic only inside one file system.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            yield cast("BinaryIO", file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp makes private files
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if os.name == "posix":  # write the rename to disk
        descriptor = os.open(path.parent, os.O_RDONLY)
        with suppress(OSError):  # some network file systems refuse
            os.fsync(descriptor)
        os.close(descriptor)


def write_atomically(path: str | Path, content: bytes) -> Path:
    """Write a file atomically and return its path; pipes and devices are written directly.

    Raises UserError if the file cannot be written; former content is unchanged then.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe or a device
            path.write_bytes(content)
        else:
            with atomic_file(Path(os.path.realpath(path))) as file:  # a link stays a link
                file.write(content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def why_unwritable(folder: Path) -> str | None:
    """Return why no file can be created in a folder, which may be missing; None where one can.

    Leaves nothing behind, so a command that fails afterwards has changed nothing.
    """
    existing = folder.absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is a file"
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0")  # fails on a full disk
            return None
    except OSError as error:
        return error.strerror


def remove_unfinished(folder: Path) -> None:
    """Delete temporary files of killed processes from the folder."""
    for path in folder.glob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)
