"""Curves of a run from its metrics.csv, and their statistics."""

import csv
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from triptych.errors import UserError

Curve = list[tuple[int, float]]
"""(step, value), by step; values from -LARGEST to LARGEST."""
LARGEST = 1e300
"""Largest size of a value that a chart can scale."""


@dataclass(frozen=True)
class Metrics:
    """Content of a metrics.csv."""

    curves: dict[str, Curve]
    """Name of a metric -> its curve, in the order of the columns; metrics without a value are left
    out."""
    notices: list[str]
    """Sentences on rows and values that were left out."""


def read_metrics(path: Path) -> Metrics:
    """Read a metrics.csv; an incomplete last row, as a run that is writing leaves it, is left out.

    A later value of the same step replaces the former one. Raises UserError for a file that is no
    table of metrics.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{path} is no table of metrics ({error})") from error
    if header[:1] != ["step"] or len(set(header)) < len(header):
        raise UserError(
            f"{path}: expected a table of metrics whose first column is step, found the columns "
            f"{', '.join(header)[:60]}"
        )
    values: dict[str, dict[int, float]] = {name: {} for name in header[1:]}
    bad_rows, bad_values = 0, 0
    for row in rows:
        if len(row) != len(header) or not row[0].isdecimal():
            bad_rows += 1
            continue
        for name, cell in zip(header[1:], row[1:], strict=True):
            if cell:
                with suppress(ValueError):
                    value = float(cell)
                    if abs(value) <= LARGEST:
                        values[name][int(row[0])] = value
                        continue
                bad_values += 1
    notices = [
        f"{path.name}: {count} {what}"
        for count, what in (
            (bad_rows, "incomplete row(s) left out, as a run that was cut off leaves them"),
            (bad_values, f"value(s) left out that are no numbers, NaN or beyond {LARGEST:g}"),
        )
        if count
    ]
    return Metrics({name: sorted(of.items()) for name, of in values.items() if of}, notices)


def key_points(curve: Curve) -> list[tuple[int, float]]:
    """Return first, last, lowest and highest point of a curve; of equal values, the first."""
    values = [value for _, value in curve]
    lowest, highest = values.index(min(values)), values.index(max(values))
    return [curve[index] for index in (0, -1, lowest, highest)]


def total(increasing: Sequence[tuple[int, float]]) -> float:
    """Return the total of a clock that starts again at 0 with each start of the run."""
    values = [*(value for _, value in increasing), -math.inf]
    return sum(value for value, after in pairwise(values) if after < value)
