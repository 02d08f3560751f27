"""Line charts of one metric by step, drawn by matplotlib in the colours of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from triptych.tools.report.metrics import Curve
from triptych.tools.report.samples import evenly_spaced

if TYPE_CHECKING:
    from triptych.tools.report.run import Run

WIDTH, HEIGHT = 460, 240
"""Size of a drawing in its units."""
PANEL = (0.126, 0.167, 0.822, 0.783)
"""Left and lower edge, width and height of the panel as shares of the drawing."""
MARKED = 60
"""Curves of at most this many points have a mark at each of them, longer ones at the last."""
TABLE_ROWS = 40
"""Rows of the table that shows a chart's values."""
GROUPS = {"val": "Validation", "train": "Training", "time": "Speed and memory"}
N_COLOURS = 6
"""Colours of lines and voices in colours.css; dashes tell the lines of further runs apart."""


@dataclass(frozen=True)
class Chart:
    """One metric of all runs that have it."""

    metric: str
    drawing: Markup
    """Content of an SVG element of WIDTH x HEIGHT; its colours and fonts are those of the page."""
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
    return {title: group for title, group in groups.items() if group}


def chart(metric: str, curves: Mapping[str, Curve], numbers: Mapping[str, int]) -> Chart:
    """Return the chart of a metric.

    curves: name of a run -> its curve, at least one, none of them empty. numbers: name of a run ->
    its number.
    """
    parts = [
        f"{name}: {short(curve[0][1])} at step {curve[0][0]:,}, "
        f"{short(curve[-1][1])} at step {curve[-1][0]:,}"
        for name, curve in curves.items()
    ]
    description = f"{metric} by step. {'; '.join(parts)}."
    return Chart(metric, _draw(metric, curves, numbers), description, _rows(curves), list(curves))


def line_class(number: int) -> str:
    """Return the classes of the line of a run: colour and dashes by its number."""
    return f"line colour-{number % N_COLOURS} dash-{(number // N_COLOURS + number) % 4}"


def short(value: float) -> str:
    """Return a value with four significant digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _draw(metric: str, curves: Mapping[str, Curve], numbers: Mapping[str, int]) -> Markup:
    """Return the content of the SVG element of a chart."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    # The salt makes the ids of two charts different, and those of two pages the same.
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": metric, "path.simplify_threshold": 0.5}
    ):
        figure = Figure((WIDTH / 72, HEIGHT / 72), frameon=False)
        axes = figure.add_axes(PANEL, frameon=False, xlabel="step")
        for number, curve in enumerate(curves.values()):
            every = 1 if len(curve) <= MARKED else [len(curve) - 1]
            axes.plot(*zip(*curve, strict=True), "o-", markersize=5, markevery=every,
                      clip_on=False, gid=f"run-{number}")  # fmt: skip
        axes.update_datalim([(0, next(iter(curves.values()))[0][1])])  # steps are shown from 0 on
        axes.margins(x=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:.6g}")
        axes.grid(clip_on=False)
        axes.tick_params(bottom=False, left=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    panel = ElementTree.fromstring(buffer.getvalue()).find(".//*[@id='axes_1']")
    assert panel is not None
    for tick in panel.iterfind(".//*[@id]"):
        if re.fullmatch(r"[xy]tick_\d+", tick.get("id", "")):
            for path in tick.iterfind(".//{*}path"):
                path.set("class", "grid")
    for number, (name, curve) in enumerate(curves.items()):
        line = panel.find(f".//*[@id='run-{number}']")
        assert line is not None
        line.set("class", line_class(numbers[name]))
        marked = curve if len(curve) <= MARKED else curve[-1:]
        for mark, (step, value) in zip(line.iterfind(".//{*}use"), marked, strict=True):
            mark.set("class", "mark")
            ElementTree.SubElement(mark, "title").text = f"{name}, step {step:,}: {short(value)}"
    for element in panel.iter():
        anchor = re.search(r"text-anchor: (\w+)", element.attrib.pop("style", ""))
        if anchor:
            element.set("text-anchor", anchor[1])
        if element.tag.endswith("path"):
            element.set("d", re.sub(r"(\.\d\d)\d+", r"\1", element.get("d", "")))
        else:  # the paths of marks alone are referred to
            element.attrib.pop("id", None)
        element.tag = element.tag.rpartition("}")[2]
        if (target := element.attrib.pop("{http://www.w3.org/1999/xlink}href", None)) is not None:
            element.set("href", target)
    return Markup(ElementTree.tostring(panel, encoding="unicode"))


def _rows(curves: Mapping[str, Curve]) -> list[tuple[int, list[str]]]:
    values = [dict(curve) for curve in curves.values()]
    steps = evenly_spaced(sorted({step for of in values for step in of}), TABLE_ROWS)
    return [(step, [short(of[step]) if step in of else "" for of in values]) for step in steps]
