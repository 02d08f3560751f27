"""Metrics as rows of metrics.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger

from triptych.training.files import atomic_file


class CsvMetrics(Logger):
    """One row per report: its step and the metrics, blank for missing ones.

    Each row is on disk when `log_metrics` returns. A new metric adds a column to all rows.
    path: the file. keep_until: step of the checkpoint of a resumed run; rows of later steps are
    dropped, since the run writes them again. None begins a new file.

    Lightning's CSVLogger deletes the rows of an earlier start in the same folder.
    """

    def __init__(self, path: Path, *, keep_until: int | None = None) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        rows: list[dict[str, str]] = []
        if keep_until is not None and path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                self.columns = list(reader.fieldnames or ["step"])
                for row in reader:
                    # A process killed during a write leaves an incomplete last row.
                    if (row.get("step") or "").isdigit() and None not in row.values():
                        rows.append(row)
            rows = [row for row in rows if int(row["step"]) <= keep_until]
        self._rewrite(rows)

    @property
    def name(self) -> str:
        """Name of the logger."""
        return "csv"

    @property
    def version(self) -> str:
        """Unused: a folder contains one run."""
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: config.yaml contains the settings."""

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
