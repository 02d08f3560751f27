"""Curves of a run from its metrics.csv, and their statistics."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from triptych.errors import UserError

Curve = list[tuple[int, float]]
"""(step, value), by step; values from -LARGEST to LARGEST."""
LARGEST = 1e300
"""Largest size of a value that a chart can scale."""
MOST_DIGITS = 15
"""Digits of the largest step that is read."""


@dataclass(frozen=True)
class Metrics:
    """Content of a metrics.csv."""

    curves: dict[str, Curve]
    """Name of a metric -> its curve, in the order of the columns; metrics without a value are left
    out."""
    notices: list[str]
    """Sentences on rows and values that were left out."""


@dataclass(frozen=True)
class KeyPoints:
    """First, last, lowest and highest point of a curve."""

    first: tuple[int, float]
    last: tuple[int, float]
    lowest: tuple[int, float]
    highest: tuple[int, float]


def read_metrics(path: Path) -> Metrics:
    """Read a metrics.csv; an incomplete last row, as a run that is writing leaves it, is left out.

    A later value of the same step replaces the former one. Raises UserError for a file that is no
    table of metrics.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not header or header[0] != "step":
        first = repr(header[0][:40]) if header else "an empty file"
        raise UserError(f"{path}: expected a table whose first column is step, found {first}")
    if len(set(header)) < len(header):
        raise UserError(f"{path} has two columns of the same name")
    values: dict[str, dict[int, float]] = {name: {} for name in header[1:]}
    bad_rows, not_finite, bad_values = 0, 0, 0
    for row in rows:
        if len(row) != len(header) or not row[0].isdecimal() or len(row[0]) > MOST_DIGITS:
            bad_rows += 1
            continue
        for name, cell in zip(header[1:], row[1:], strict=True):
            if not cell:
                continue
            try:
                value = float(cell)
            except ValueError:
                bad_values += 1
                continue
            if abs(value) <= LARGEST:
                values[name][int(row[0])] = value
            else:
                not_finite += 1
    notices = [
        f"{path.name}: {count} {what}"
        for count, what in (
            (bad_rows, "incomplete row(s) left out, as a run that was cut off leaves them"),
            (bad_values, "value(s) left out that are no numbers"),
            (not_finite, f"value(s) left out that are NaN, infinite or beyond {LARGEST:g}"),
        )
        if count
    ]
    return Metrics({name: sorted(of.items()) for name, of in values.items() if of}, notices)


def key_points(curve: Curve) -> KeyPoints:
    """Return the statistics of a curve with at least one point; of equal values, the first."""
    return KeyPoints(
        curve[0],
        curve[-1],
        min(curve, key=lambda point: point[1]),
        max(curve, key=lambda point: point[1]),
    )


def thinned(curve: Curve, limit: int) -> Curve:
    """Return at most `limit` points: the lowest and the highest of each stretch of equal length.

    Curves of at most `limit` points are returned as they are. The first and the last point are
    kept. limit: at least 4.
    """
    if len(curve) <= limit:
        return curve
    inner, buckets = curve[1:-1], (limit - 2) // 2
    edges = [len(inner) * bucket // buckets for bucket in range(buckets + 1)]
    kept = {curve[0], curve[-1]}
    for start, end in pairwise(edges):
        stretch = inner[start:end]
        kept |= {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
    return sorted(kept)


def total(increasing: Sequence[tuple[int, float]]) -> float:
    """Return the total of a clock that starts again at 0 with each start of the run."""
    values = [value for _, value in increasing]
    ends = [
        value
        for value, after in zip(values, [*values[1:], -math.inf], strict=True)
        if after < value
    ]
    return sum(ends)
