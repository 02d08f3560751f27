"""metrics.csv is always written, and holds what a resumed run goes on with."""

from __future__ import annotations

import csv
from pathlib import Path

from triptych.training.loggers import CsvMetrics


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_is_on_disk_after_every_row_and_takes_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = CsvMetrics(path)
    logger.log_metrics({"a": 1.0}, 1)
    assert read(path) == [{"step": "1", "a": "1"}]
    logger.log_metrics({"b": 0.1}, 1)
    logger.log_metrics({"a": 2.0}, 2)
    assert read(path) == [
        {"step": "1", "a": "1", "b": ""},
        {"step": "1", "a": "", "b": "0.1"},
        {"step": "2", "a": "2", "b": ""},
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_csv_of_a_resumed_run_drops_later_and_broken_rows(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = CsvMetrics(path)
    for step in range(1, 5):
        logger.log_metrics({"a": step, "b": step}, step)
    with path.open("a", encoding="utf-8") as file:
        file.write("2,7")  # killed while writing
    resumed = CsvMetrics(path, keep_until=2)
    resumed.log_metrics({"c": 9.0}, 3)
    assert [(row["step"], row["a"], row["c"]) for row in read(path)] == [
        ("1", "1", ""),
        ("2", "2", ""),
        ("3", "", "9"),
    ]
    assert read(CsvMetrics(path).path) == []
