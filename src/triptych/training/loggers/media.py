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


def collect(log_samples: Callable[[Path], list[Media]], folder: Path) -> list[Media]:
    """Return the samples that `log_samples` writes into the folder; also write its tables.

    A table is `<name>.csv` in UTF-8. A folder without files is deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    media = log_samples(folder)
    for item in media:
        if item.kind == "table":
            with (folder / f"{item.name}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(item.columns)
                writer.writerows(item.rows)
    if not any(folder.iterdir()):
        folder.rmdir()
    return media


def log_media(loggers: Iterable[Any], media: Sequence[Media], step: int) -> None:
    """Give the media to every logger with a method `log_media`."""
    for logger in loggers:
        if media and hasattr(logger, "log_media"):
            logger.log_media(media, step)
