"""Draws a loss curve as inline SVG whose colours follow the page (light or dark); no dependency."""

from __future__ import annotations

import csv
import html
import math
from pathlib import Path

WIDTH, HEIGHT = 640, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 26, 14, 34

Line = list[tuple[float, float]]


def read_lines(path: Path, names: dict[str, float]) -> dict[str, Line]:
    """Points (step, value) of the named columns of a metrics.csv; names: column -> factor."""
    lines: dict[str, Line] = {name: [] for name in names}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for name, factor in names.items():
                if row.get(name):
                    lines[name].append((float(row["step"]), float(row[name]) * factor))
    return {name: points for name, points in lines.items() if points}


def curve(lines: dict[str, Line], unit: str, rulers: dict[str, float]) -> str:
    """An SVG of the lines over training steps, with a dashed ruler for each baseline.

    lines: css class -> points. Rulers that would squash the curves flat stay out.
    """
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    last = max(step for step, _ in points)
    values = [value for _, value in points if math.isfinite(value)]
    low, high = min(values), max(values)
    rulers = {name: value for name, value in rulers.items() if low * 0.5 <= value <= high * 1.05}
    low, high = min([low, *rulers.values()]), max([high, *rulers.values()])
    margin = (high - low or 1.0) * 0.06
    low, high = max(0.0, low - margin), high + margin

    def x(step: float) -> float:
        return LEFT + step / (last or 1.0) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in ticks(low, high):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" {_level(y(tick))}/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" class="end">{tick:g}</text>')
    for tick in ticks(0, last):
        parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - 14}" class="mid">{tick:,.0f}</text>')
    for name, value in rulers.items():
        parts.append(f'<line class="ruler" x1="{LEFT}" x2="{WIDTH - RIGHT}" {_level(y(value))}/>')
        parts.append(
            f'<text x="{WIDTH - RIGHT}" y="{y(value) - 5:.1f}" class="end">'
            f"{html.escape(name)} {value:.2f}</text>"
        )
    for name, line in lines.items():
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in line)
        parts.append(f'<polyline class="line {name}" points="{path}"/>')
        if name == "validation":
            parts += [
                f'<circle class="{name}" cx="{x(step):.1f}" cy="{y(value):.1f}" r="3"/>'
                for step, value in line
            ]
    legend = " and ".join(lines)
    return (
        f'<figure class="curve"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(legend)}, {html.escape(unit)} over training steps">'
        f"{''.join(parts)}</svg><figcaption>{html.escape(unit)} over training steps: "
        + ", ".join(f'<span class="key {name}">{name}</span>' for name in lines)
        + "</figcaption></figure>"
    )


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between low and high, about five of them."""
    rough = (high - low) / 5 or 1.0
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * size for size in (1, 2, 2.5, 5, 10) if power * size >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _level(height: float) -> str:
    return f'y1="{height:.1f}" y2="{height:.1f}"'
