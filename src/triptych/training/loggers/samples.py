"""Protocol of the loggers that show samples: tables, images, sounds, pages and MIDI files."""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from triptych.training.callbacks.progress import say
from triptych.training.loggers.csv import RunLogger


class SampleLog(RunLogger):
    """Logger of metrics and samples that is closed with one sentence after its first error.

    Domains write files, see `TrainingModule.log_samples`; the suffix of a file selects the method
    that shows it. A subclass speaks to one service, whose object is `target`; None once closed.
    With Lightning's own loggers an error of the service ends the training.
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
    def table(self, name: str, columns: list[str], rows: list[list[str]], step: int) -> None:
        """Show a table."""

    @abstractmethod
    def image(self, name: str, path: Path, step: int) -> None:
        """Show a PNG file."""

    @abstractmethod
    def audio(self, name: str, path: Path, step: int) -> None:
        """Play a WAV file."""

    @abstractmethod
    def html(self, name: str, path: Path, step: int) -> None:
        """Show a page."""

    @abstractmethod
    def midi(self, paths: Sequence[Path], step: int) -> None:
        """Keep the MIDI files of a validation, or name their place."""

    @abstractmethod
    def close(self, *, succeeded: bool) -> None:
        """Write what is left and close the service's object."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics."""
        self._try(lambda: self.scalars(metrics, step))

    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show each file under samples/ and its name without the suffix."""
        self._try(lambda: self._show(files, step))

    def finalize(self, status: str) -> None:
        """Close the logger; a status other than success marks the run as failed."""
        self._try(lambda: self.close(succeeded=status == "success"))
        self.target = None

    def _show(self, files: Sequence[Path], step: int) -> None:
        for path in files:
            name = f"samples/{path.stem}"
            if path.suffix == ".csv":
                with path.open(encoding="utf-8", newline="") as file:
                    columns, *rows = csv.reader(file)
                self.table(name, columns, rows, step)
            elif path.suffix == ".png":
                self.image(name, path, step)
            elif path.suffix == ".wav":
                self.audio(f"{name}-sound", path, step)
            elif path.suffix == ".html":
                self.html(f"{name}-page", path, step)
        midi = [path for path in files if path.suffix == ".mid"]
        if midi:
            self.midi(midi, step)

    def _try(self, action: Callable[[], object]) -> None:
        if self.target is None:
            return
        try:
            action()
        except Exception as error:
            self.target = None
            say(
                f"{self.service} failed ({type(error).__name__}: {error}) and is off from here; "
                "the training goes on, metrics are in metrics.csv."
            )
