"""Line charts: one metric of several runs by step, as coordinates of an SVG drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from triptych.tools.report.metrics import Curve, thinned

if TYPE_CHECKING:
    from triptych.tools.report.run import Run

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 58, 24, 12, 40
"""Margins around the panel of a chart, for the labels."""
MOST_POINTS = 600
"""Points of a line; longer curves are thinned."""
MARKED = 60
"""Curves of at most this many points have a mark at each of them."""
TABLE_ROWS = 40
"""Rows of the table that shows a chart's values."""
GROUPS = {"val": "Validation", "train": "Training", "time": "Speed and memory"}


@dataclass(frozen=True)
class Tick:
    """Label at a coordinate."""

    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """Curve of one run; x and y in units of the drawing."""

    run: str
    number: int
    """Of the run; it chooses the colour and the dashes."""
    path: str
    """As the attribute `points` of a polyline."""
    marks: list[tuple[float, float, str]]
    """(x, y, text)."""


@dataclass(frozen=True)
class Chart:
    """One metric of all runs that have it."""

    metric: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]
    description: str
    rows: list[tuple[int, list[str]]]
    """(step, value in each run or nothing), for the table of values."""
    runs: list[str]
    """Names of the columns of `rows`."""


def charts(runs: Sequence[Run]) -> dict[str, list[Chart]]:
    """Return the charts of all metrics of the runs, by group: validation, training, speed."""
    names = dict.fromkeys(name for run in runs for name in run.curves)
    groups: dict[str, list[Chart]] = {title: [] for title in (*GROUPS.values(), "Other")}
    for name in names:
        curves = {run.name: run.curves[name] for run in runs if name in run.curves}
        numbers = {run.name: number for number, run in enumerate(runs)}
        groups[GROUPS.get(name.partition("/")[0], "Other")].append(chart(name, curves, numbers))
    return {title: found for title, found in groups.items() if found}


def chart(metric: str, curves: Mapping[str, Curve], numbers: Mapping[str, int]) -> Chart:
    """Return the chart of a metric.

    curves: name of a run -> its curve, at least one, none of them empty. numbers: name of a run ->
    its number.
    """
    steps = [step for curve in curves.values() for step, _ in curve]
    values = [value for curve in curves.values() for _, value in curve]
    x_ticks, (left, right) = _ticks(min(*steps, 0), max(steps), 6, whole=True)
    y_ticks, (low, high) = _ticks(min(values), max(values), 5)

    def x(step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (step - left) / (right - left), 2)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low), 2)

    lines, parts = [], []
    for name, curve in curves.items():
        points = thinned(curve, MOST_POINTS)
        path = " ".join(f"{x(step)},{y(value)}" for step, value in points)
        marks = [
            (x(step), y(value), f"{name}, step {step:,}: {short(value)}") for step, value in points
        ]
        lines.append(
            Line(name, numbers[name], path, marks if len(points) <= MARKED else marks[-1:])
        )
        parts.append(
            f"{name}: {short(curve[0][1])} at step {curve[0][0]:,}, "
            f"{short(curve[-1][1])} at step {curve[-1][0]:,}"
        )
    return Chart(
        metric,
        [Tick(x(value), f"{value:,.0f}") for value in x_ticks],
        [Tick(y(value), f"{value:.6g}") for value in y_ticks],
        lines,
        f"{metric} by step. {'; '.join(parts)}.",
        _rows(curves),
        list(curves),
    )


def short(value: float) -> str:
    """Return a value with four significant digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _ticks(
    low: float, high: float, count: int, *, whole: bool = False
) -> tuple[list[float], tuple[float, float]]:
    """Return about `count` round values and the ends of the axis, which include low and high."""
    from matplotlib.ticker import MaxNLocator

    if low == high:
        low, high = (low, high + 1) if whole or low == 0 else (low - abs(low), low + abs(low))
    locator = MaxNLocator(nbins=count, steps=[1, 2, 2.5, 5, 10], integer=whole)
    ticks = [float(value) for value in locator.tick_values(low, high)]
    if whole:  # an axis of steps ends with the last step
        ticks = [value for value in ticks if low <= value <= high]
        return ticks, (low, high)
    return ticks, (ticks[0], ticks[-1])


def _rows(curves: Mapping[str, Curve]) -> list[tuple[int, list[str]]]:
    values = [dict(curve) for curve in curves.values()]
    steps = sorted({step for of in values for step in of})
    if len(steps) > TABLE_ROWS:
        steps = [steps[round(i * (len(steps) - 1) / (TABLE_ROWS - 1))] for i in range(TABLE_ROWS)]
    return [(step, [short(of[step]) if step in of else "" for of in values]) for step in steps]
