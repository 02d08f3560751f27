"""Loggers of a run: their base, and rows of metrics.csv; see also `wandb_logger`."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from torch import Tensor, nn

from triptych.files.results import atomic_file

Before = Mapping[str, tuple[Tensor, Tensor]]
"""Weights before an update and its gradients before clipping, by the names of the parameters."""


class RunLogger(Logger):
    """Base of the run's loggers; settings are in config.yaml, and a folder contains one run."""

    name = "triptych"
    version = ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        return

    def log_files(self, files: Sequence[Path], step: int) -> None:
        """Show the samples of a validation; the files are in the run's folder anyway."""

    def log_update(self, before: Before, model: nn.Module, step: int) -> None:
        """Log what an update has done to the parameters; nothing unless overridden."""


class CsvMetrics(RunLogger):
    """One row per report, on disk at once: its step and the metrics, blank for missing ones.

    A new metric adds a column to all rows. keep_until: step at which the run starts; rows of later
    steps are dropped, since a resumed run writes them again. Lightning's CSVLogger deletes the rows
    of an earlier start in the same folder.
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
