"""Text files read line by line: only "\\n" ends a line, a bad file ends in one sentence."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from triptych.errors import UserError

BLANKS = " \t\r"
"""What is stripped from both ends of a line. Python's own `strip` would take U+2028, U+0085 and
the no-break space too, and `splitlines` would end lines at them: they are part of the text."""


def check_file(path: Path) -> None:
    """Raise UserError where `path` is not a file that can be opened for reading."""
    if not path.is_file():
        kind = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise UserError(f"the text file {path} {kind}.")
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise UserError(f"the text file {path} cannot be read: {error.strerror}.") from error


def read_lines(path: Path, *, strip: bool = True) -> list[str]:
    """All lines of a UTF-8 file, gzip where its name ends in .gz.

    strip: take blanks, tabs and "\\r" from both ends of each line.

    A last line without "\\n" counts; nothing after a last "\\n" does not. A byte order mark is not
    text. Raises UserError for a missing or truncated file and for bytes that are not UTF-8.
    """
    check_file(path)
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            # Nothing at all decompresses to nothing, silently; a whole gzip file has a header.
            content = gzip.decompress(content or b"\0")
        text = content.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a whole gzip file ({error}).") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path} is not UTF-8 text: line {line} holds the byte 0x{content[error.start]:02x} "
            "where a character was expected."
        ) from error
    except OSError as error:
        raise UserError(f"the text file {path} cannot be read: {error.strerror}.") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.strip(BLANKS) for line in lines] if strip else lines
