"""Figures in metrics.csv, a row per report: written always, beside the checkpoints."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger


class CsvMetrics(Logger):
    """One row per report in metrics.csv: its step and the figures, blank where there is none.

    Each row is on disk when `log_metrics` returns. A figure that was not there before adds a
    column; the file is then written anew beside the old one and renamed.

    path: the file. keep_until: rows of later steps are dropped, for a run that is resumed from
    there will write them again; None begins a new file.
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
                    # A kill in the middle of a write leaves a short last row: it is dropped.
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
        """Unused: one folder is one run."""
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml holds them."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a row and flush it."""
        new = [name for name in metrics if name not in self.columns]
        if new:
            with self.path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            self.columns += new
            self._rewrite(rows)
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            writer.writerow({"step": step if step is not None else "", **_short(metrics)})

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(unfinished, self.path)


def _short(metrics: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{float(value):.10g}" for name, value in metrics.items()}
