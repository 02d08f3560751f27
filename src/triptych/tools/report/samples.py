"""Samples in a folder: images, pieces and tables, and the validations that made them."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TypeVar

from triptych import domains
from triptych.errors import UserError
from triptych.files.piano_roll import Piece

Item = TypeVar("Item")

_STEP = re.compile(r"step-(\d+)")
GRID = "grid.png"
"""Image that shows all images of its folder."""


@dataclass(frozen=True)
class Picture:
    """PNG file; width and height in pixels."""

    name: str
    content: bytes
    width: int
    height: int


@dataclass(frozen=True)
class Table:
    """Rows of text; rows have as many cells as there are columns."""

    name: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Items:
    """Content of a folder of samples."""

    pictures: list[Picture] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """Sentences on files that cannot be shown."""

    def __bool__(self) -> bool:
        return bool(self.pictures or self.pieces or self.tables)


@dataclass(frozen=True)
class Validation:
    """Samples of one validation."""

    step: int
    items: Items


def read_validations(folder: Path, *, most: int) -> list[Validation]:
    """Read the folders step-N of a run's samples, by step.

    most: largest number of validations that are read; of more, evenly spaced ones with the first
    and the last.
    """
    folders = sorted(
        (int(match[1]), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _STEP.fullmatch(path.name)) and path.is_dir()
    )
    return [Validation(step, read_items(path)) for step, path in evenly_spaced(folders, most)]


def evenly_spaced(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` of the items, evenly spaced, the last one included."""
    last = len(items) - 1
    chosen = {round(last - index * last / max(most - 1, 1)) for index in range(most)}
    return [items[index] for index in sorted(chosen)] if items else []


def read_items(folder: Path) -> Items:
    """Read the images, pieces and tables of a folder.

    A grid stands for all images, and a piece for its drawing and its sound. Files that cannot be
    read are named in the notices.
    """
    items = Items()
    paths = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    readers = piece_readers()
    pieces = {path.stem for path in paths if path.suffix in readers}
    grid = [path for path in paths if path.name == GRID]
    pictures = grid or [path for path in paths if path.suffix == ".png" and path.stem not in pieces]
    for path in paths:
        if path.suffix in readers:
            _add(items.pieces, path, resolve_name(readers[path.suffix]), items.notices)
        elif path.suffix == ".csv":
            _add(items.tables, path, read_table, items.notices)
        elif path in pictures:
            _add(items.pictures, path, read_picture, items.notices)
    return items


def piece_readers() -> dict[str, str]:
    """Return the functions that read pieces, as module:function, by the suffix of their files."""
    found = map(domains.find_domain, domains.names())
    return {suffix: reader for domain in found for suffix, reader in domain.piece_files.items()}


def _add(to: list[Item], path: Path, read: Callable[[Path], Item], notices: list[str]) -> None:
    """Add what a file holds, or a notice where it cannot be read."""
    try:
        to.append(read(path))
    except UserError as error:
        notices.append(str(error))


def read_picture(path: Path) -> Picture:
    """Read a PNG file; raises UserError for one that is damaged."""
    from PIL import Image

    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            image.load()
            return Picture(path.stem, content, *image.size)
    # Pillow's errors for damaged files, and for one that claims billions of pixels.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} is not an image that can be shown ({error})") from error


def read_table(path: Path) -> Table:
    """Read a CSV file; rows of another length than the header are left out.

    Raises UserError for a file that is not a table.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            columns, *rows = csv.reader(file)
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} is not a table that can be shown ({error})") from error
    return Table(path.stem, columns, [row for row in rows if len(row) == len(columns)])
