"""Files of results: whole or not there at all, and readable as other new files are."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from triptych.errors import UserError


def write_whole(path: str | Path, content: bytes) -> Path:
    """Put content at path in one move, its folder made where it is missing; returns the path.

    A reader never sees half of it, and neither does whoever looks after a power cut. Raises
    UserError where it cannot be written; what was there before is then untouched.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe or a device takes what it is given
            path.write_bytes(content)
            return path
        target = Path(os.path.realpath(path))  # a link stays one
        target.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder: a rename across file systems would be a copy.
        handle, temporary = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"
        )
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            allow_reading(temporary)
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path


def allow_reading(path: str | Path) -> None:
    """Give a file of mkstemp, which is private, the permissions that an ordinary new file has."""
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(path, 0o666 & ~umask)
