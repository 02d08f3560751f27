"""Text files: lines of UTF-8, plain or gzip, and columns of tab-separated tables."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from triptych.domains.files import split_lines
from triptych.errors import UserError

SPACES = " \t\r"
"""Characters stripped from both ends of a line. `str.strip` without arguments would also remove
U+2028, U+0085 and the no-break space, which are part of the text."""


def check_folder(directory: str) -> None:
    """Raise UserError if `directory` is not an existing folder; `~` is the user's home."""
    if not Path(directory).expanduser().is_dir():
        raise UserError(
            f"the folder {directory} does not exist; expected the folder that holds the text files "
            "(the setting data.source.directory)"
        )


def check_file(path: Path) -> None:
    """Raise UserError if `path` is not a file that can be opened for reading."""
    if not path.is_file():
        found = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise UserError(f"the text file {path} {found}")
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise UserError(f"the text file {path} cannot be read: {error.strerror}") from error


def read_lines(path: Path, *, strip: bool = True) -> list[str]:
    r"""Return all lines of a UTF-8 file; a name ending in .gz is decompressed.

    Only "\n" ends a line. strip: remove `SPACES` from both ends of each line. Raises UserError for
    a missing file, a truncated or damaged gzip file and bytes that are not UTF-8.
    """
    check_file(path)
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            # An empty input would decompress to nothing without an error.
            content = gzip.decompress(content or b"\0")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a complete gzip file ({error})") from error
    except OSError as error:
        raise UserError(f"the text file {path} cannot be read: {error.strerror}") from error
    lines = split_lines(io.BytesIO(content), name=str(path))
    return [line.strip(SPACES) for line in lines] if strip else lines


def read_columns(path: Path, columns: list[str]) -> list[list[str]]:
    """Return the cells of the named columns of a tab-separated file, row by row, stripped.

    The first line is the header; quotes have no meaning. Raises UserError for a missing column and
    for a row whose number of cells differs from the header's.
    """
    # Lines are not stripped before they are split: an empty last cell is a cell.
    lines = read_lines(path, strip=False)
    header = [cell.strip(SPACES) for cell in lines[0].split("\t")] if lines else []
    for name in columns:
        if name not in header:
            raise UserError(
                f"{path} has no column {name!r}; its header has {', '.join(header) or 'nothing'}"
            )
    indices = [header.index(name) for name in columns]
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split("\t")
        if len(cells) != len(header):
            raise UserError(
                f"line {number} of {path} has {len(cells)} tab-separated cells and the header has "
                f"{len(header)}"
            )
        rows.append([cells[index].strip(SPACES) for index in indices])
    return rows
