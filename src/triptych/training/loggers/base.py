"""Loggers of a run: metrics as rows of metrics.csv, and the base of those that show samples."""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pytorch_lightning.loggers.logger import Logger

from triptych.files.results import atomic_file
from triptych.training.callbacks.progress import say

KINDS = {".csv": "", ".png": "", ".wav": "-sound", ".html": "-page"}
"""Suffix of a file that is shown -> end of the name under which it is."""


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    return columns, rows


class RunLogger(Logger):
    """Base of the run's loggers; settings are in config.yaml, and a folder contains one run."""

    name = "triptych"
    version = ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show the samples of a validation; the files are in the run's folder anyway."""


class CsvMetrics(RunLogger):
    """One row per report: its step and the metrics, blank for missing ones.

    Each row is on disk when `log_metrics` returns. A new metric adds a column to all rows.
    path: the file. keep_until: step at which the run starts; rows of later steps in the file are
    dropped, since a resumed run writes them again.

    Lightning's CSVLogger deletes the rows of an earlier start in the same folder.
    """

    def __init__(self, path: Path, *, keep_until: int = 0) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        rows: list[dict[str, str]] = []
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                rows = list(reader)
                self.columns = list(reader.fieldnames or self.columns)
        # A process killed during a write leaves an incomplete last row.
        whole = [row for row in rows if None not in row.values() and row["step"].isdigit()]
        self._rewrite([row for row in whole if int(row["step"]) <= keep_until])

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a row."""
        new = [name for name in metrics if name not in self.columns]
        if new:
            with self.path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            self.columns += new
            self._rewrite(rows)
        short = {name: f"{float(value):.10g}" for name, value in metrics.items()}
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            writer.writerow({"step": step if step is not None else "", **short})

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with atomic_file(self.path) as file:
            file.write(text.getvalue().encode("utf-8"))


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
            if path.suffix in KINDS:
                self.show(f"samples/{path.stem}{KINDS[path.suffix]}", path, step)
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
