"""The table of a comparison as text, Markdown, CSV and LaTeX, and its curves."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from triptych.files.drawing import COLOURS, new_figure, png
from triptych.tools.compare.plan import Budget, Cost
from triptych.tools.compare.runs import Cell, Outcome

Outcomes = Mapping[Cell, Outcome]


class Row(NamedTuple):
    """Results of a variant; those of which there are too few runs are None."""

    variant: str
    parameters: int
    steps: float | None
    """Updates of a run, on average."""
    flops: float | None
    """Operations of a run, on average."""
    seeds: int
    """Finished runs."""
    mean: float | None = None
    """Of the best validation of each run."""
    error: float | None = None
    """Standard error of the mean."""
    difference: float | None = None
    """Mean difference from the first variant, over the seeds of both."""
    common_seeds: int = 0
    """Seeds of the difference."""
    difference_error: float | None = None
    p: float | None = None
    """Of a two-sided paired t-test of the difference over the seeds."""

    def cells(self) -> list[str]:
        """Return the row as text; cells without a value are empty."""
        fewer = 0 < self.common_seeds < self.seeds
        of_fewer = f" (seeds: {self.common_seeds})" if fewer else ""
        return [
            self.variant,
            f"{self.parameters:,}",
            "" if self.steps is None else f"{self.steps:,.0f}",
            "" if self.flops is None else f"{self.flops / 1e12:.3g}",
            str(self.seeds),
            _with_error(self.mean, self.error, ""),
            _with_error(self.difference, self.difference_error, "+") + of_fewer,
            "" if self.p is None else "< 0.001" if self.p < 0.001 else f"{self.p:.3f}",
        ]


def _with_error(mean: float | None, error: float | None, sign: str) -> str:
    shown = "" if mean is None else f"{mean:{sign}.4f}"
    return shown if error is None else f"{shown} ± {error:.4f}"


def p_value(t: float, freedom: int) -> float:
    """Return the probability of a Student's t of at least |t|.

    freedom: degrees of freedom, at least 1. Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.
    """
    angle, odd = math.atan2(abs(t), math.sqrt(freedom)), freedom % 2
    term = math.cos(angle) if odd else 1.0
    series = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        series += term
    inside = math.sin(angle) * series
    return max(0.0, 1 - (2 / math.pi * (angle + inside) if odd else inside))


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and its standard error; None for a mean of nothing and an error of one."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return (fmean(values) if values else None), error


def summarise(
    outcomes: Outcomes, costs: Mapping[str, Cost], steps: Mapping[str, int | None]
) -> list[Row]:
    """Return a row for each variant, in the order of `costs`.

    outcomes: of finished runs. steps: planned updates, for variants without one.
    """
    rows: list[Row] = []
    first: dict[int, float] = {}
    for variant, cost in costs.items():
        own = {cell.seed: o for cell, o in outcomes.items() if cell.variant == variant}
        scores = {seed: outcome.best[1] for seed, outcome in own.items()}
        taken = fmean(o.planned for o in own.values()) if own else steps[variant]
        flops = None if taken is None else taken * cost.flops
        row = Row(variant, cost.parameters, taken, flops, len(own),
                  *mean_and_error([*scores.values()]))  # fmt: skip
        if rows:
            pairs = [scores[seed] - first[seed] for seed in scores.keys() & first.keys()]
            difference, error = mean_and_error(pairs)
            row = row._replace(
                difference=difference, common_seeds=len(pairs), difference_error=error
            )
            if difference is not None and error is not None:
                t = difference / error if error else math.inf * difference if difference else 0.0
                row = row._replace(p=p_value(t, len(pairs) - 1))
        else:
            first = scores
        rows.append(row)
    return rows


def lines_of(rows: Sequence[Row], outcomes: Outcomes) -> list[list[str]]:
    """Return the cells of the table, headings first."""
    score = "score"
    for outcome in outcomes.values():
        score = f"{'lowest' if outcome.mode == 'min' else 'highest'} {outcome.metric}"
    headings = ["variant", "parameters", "steps", "TFLOP", "seeds", score, "difference", "p"]
    return [headings, *(row.cells() for row in rows)]


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table, headings first, as Markdown; all but the first column stand right."""
    rule = ["---", *["---:"] * (len(lines[0]) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))


def as_latex(lines: Sequence[Sequence[str]]) -> str:
    """Return a table, headings first, for LaTeX's package booktabs."""
    special = str.maketrans({"±": r"$\pm$", "_": r"\_", "<": "$<$"})
    joined = (" & ".join(line).translate(special).replace("& -", "& $-$") for line in lines)
    first, *rest = (line + r" \\" for line in joined)
    begin = rf"\begin{{tabular}}{{l{'r' * (len(lines[0]) - 1)}}}"
    rows = [begin, r"\toprule", first, r"\midrule", *rest, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(rows) + "\n"


def as_csv(lines: Sequence[Sequence[object]]) -> str:
    """Return lines of values as CSV; None is an empty cell."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()


def run_lines(outcomes: Outcomes) -> list[Sequence[object]]:
    """Return a line for each run, headings first."""
    lines: list[Sequence[object]] = [("variant", "seed", "steps", "best", "step_of_best", "last")]
    for cell, outcome in outcomes.items():
        step, best = outcome.best
        lines.append((*cell, outcome.planned, best, step, outcome.curve[-1][1]))
    return lines


def draw(outcomes: Outcomes, budget: Budget) -> bytes:
    """Return the curves of the variants over the budget as PNG: mean and standard error."""
    unit, amount = next((name, x) for name, x in vars(budget).items() if x is not None)
    figure = new_figure(7.5, 4.5)
    axes = figure.add_subplot(xlabel=unit, ylabel=next(iter(outcomes.values())).metric)
    for number, variant in enumerate(dict.fromkeys(cell.variant for cell in outcomes)):
        curves = [
            [(step / o.planned * amount, value) for step, value in o.curve]
            for cell, o in outcomes.items()
            if cell.variant == variant
        ]
        points = [[*zip(*column, strict=True)] for column in zip(*curves, strict=False)]
        x = [fmean(places) for places, _ in points]
        mean = [fmean(values) for _, values in points]
        error = [mean_and_error(values)[1] or 0.0 for _, values in points]
        colour, style = COLOURS[number % len(COLOURS)], ("-", "--")[number // len(COLOURS) % 2]
        axes.plot(x, mean, style, color=colour, marker="o", markersize=3, label=variant)
        low, high = ([m + side * e for m, e in zip(mean, error, strict=True)] for side in (-1, 1))
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return png(figure)
