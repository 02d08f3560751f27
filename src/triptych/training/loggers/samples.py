"""Base of the loggers that show samples: tables, images, sounds, pages and MIDI files."""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from triptych.training.callbacks.progress import say
from triptych.training.loggers.csv import RunLogger

KINDS = {".csv": "", ".png": "", ".wav": "-sound", ".html": "-page"}
"""Suffix of a file that is shown -> end of the name under which it is."""


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    return columns, rows


class SampleLog(RunLogger):
    """Logger of metrics and samples that is closed with one sentence after its first error.

    Domains write files, see `TrainingModule.log_samples`. A subclass speaks to one service, whose
    object is `target`; None once closed. With Lightning's own loggers an error of the service ends
    the training.
    """

    service: ClassVar[str]
    """Name of the service, for messages."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self.target = target

    @abstractmethod
    def scalars(self, metrics: Mapping[str, float], step: int | None) -> None:
        """Log metrics."""

    @abstractmethod
    def show(self, name: str, path: Path, step: int) -> None:
        """Show a PNG, WAV or HTML file, or the table of a CSV file."""

    @abstractmethod
    def midi(self, paths: Sequence[Path], step: int) -> None:
        """Keep the MIDI files of a validation, or name their place."""

    @abstractmethod
    def close(self, *, succeeded: bool) -> None:
        """Write what is left and close the service's object."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._try(self.scalars, metrics, step)

    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show each file under samples/ and its name without the suffix."""
        for path in files:
            if path.suffix in KINDS:
                self._try(self.show, f"samples/{path.stem}{KINDS[path.suffix]}", path, step)
        if midi := [path for path in files if path.suffix == ".mid"]:
            self._try(self.midi, midi, step)

    def finalize(self, status: str) -> None:
        """Close the logger; a status other than success marks the run as failed."""
        self._try(lambda: self.close(succeeded=status == "success"))
        self.target = None

    def _try(self, action: Callable[..., object], *arguments: Any) -> None:
        if self.target is None:
            return
        try:
            action(*arguments)
        except Exception as error:
            self.target = None
            say(
                f"{self.service} failed ({type(error).__name__}: {error}) and is off from here; "
                "the training goes on, metrics are in metrics.csv."
            )
