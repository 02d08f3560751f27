"""Samples of a validation: images, sounds, MIDI files and tables."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Media:
    """Sample as a file, or a table.

    kind "image": path of a .png. kind "audio": path of a .wav. kind "midi": path of a .mid.
    kind "table": columns and rows of text and numbers; `collect` writes its file.
    """

    kind: Literal["image", "audio", "midi", "table"]
    name: str
    """Name without spaces: key in wandb, and stem of a table's file."""
    path: Path | None = None
    """Path of the file, for all kinds but table."""
    columns: Sequence[str] = ()
    """Headings of a table."""
    rows: Sequence[Sequence[Any]] = ()
    """Rows of a table, each as long as columns."""
    caption: str = ""
    """One line under the image or sound."""

    def __post_init__(self) -> None:
        """Raise ValueError for fields that do not fit the kind."""
        if self.kind not in ("image", "audio", "midi", "table"):
            raise ValueError(f"no media of kind {self.kind!r}")
        if self.kind == "table":
            if not self.columns:
                raise ValueError(f"the table {self.name!r} needs columns")
            for row in self.rows:
                if len(row) != len(self.columns):
                    raise ValueError(
                        f"the table {self.name!r} has {len(self.columns)} columns "
                        f"and a row of {len(row)}"
                    )
        elif self.path is None:
            raise ValueError(f"the {self.kind} {self.name!r} needs a path")


def collect(log_samples: Callable[[Path], list[Media]], folder: Path) -> list[Media]:
    """Return the samples that `log_samples` writes into the folder; also write its tables."""
    folder.mkdir(parents=True, exist_ok=True)
    media = log_samples(folder)
    for item in media:
        if item.kind == "table" and item.path is None:
            write_table(item, folder)
    if not any(folder.iterdir()):
        folder.rmdir()
    return media


def write_table(media: Media, folder: Path) -> Path:
    """Write a table as `<name>.csv` (UTF-8) into the folder and return its path."""
    path = folder / f"{media.name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(media.columns)
        writer.writerows(media.rows)
    return path


def log_media(loggers: Iterable[Any], media: Sequence[Media], step: int) -> None:
    """Give the media to every logger with a method `log_media`."""
    for logger in loggers:
        method = getattr(logger, "log_media", None)
        if method is not None and media:
            method(media, step)
