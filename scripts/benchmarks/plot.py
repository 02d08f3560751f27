"""The picture of the growth tables: time a token or a pixel against the work, on log scales."""

from __future__ import annotations

from pathlib import Path

from benchmarks.rows import Section

COLOURS = {"minimal": "#888888", "Triptych full": "#c44e52"}
WHAT = {"decoding batch": "decoding"}
MORE = ("#4c72b0", "#55a868", "#8172b2", "#ccb974")


def plot_growth(section: Section, path: Path) -> str | None:
    """Write a PNG; why not, where matplotlib or the figures are missing."""
    try:
        import matplotlib
    except ImportError:
        return "matplotlib is not installed"
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    lines: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = {}
    for table in section.tables:
        axis = (table.sizes["axis"], table.unit.rstrip("s"))
        for row in table.rows:
            if row.rate:
                points = lines.setdefault(axis, {}).setdefault(row.name, [])
                points.append((table.sizes["value"], 1e6 / row.rate))
    if not lines:
        return "no growth was measured"
    figure, axes = pyplot.subplots(1, len(lines), figsize=(3.4 * len(lines), 3.4), squeeze=False)
    for axes_of_one, ((axis, unit), by_name) in zip(axes[0], lines.items(), strict=True):
        for index, (name, points) in enumerate(by_name.items()):
            colour = COLOURS.get(name, MORE[index % len(MORE)])
            axes_of_one.plot(
                *zip(*points, strict=True), marker="o", markersize=3, label=name, color=colour
            )
        values = sorted({value for points in by_name.values() for value, _ in points})
        axes_of_one.set_xscale("log", base=2)
        axes_of_one.set_yscale("log")
        axes_of_one.set_xticks(values, [str(value) for value in values], rotation=45)
        for which in (axes_of_one.yaxis.set_major_formatter, axes_of_one.yaxis.set_minor_formatter):
            which(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes_of_one.set_xlabel(axis, fontsize=8)
        axes_of_one.set_title(f"µs a {unit}, {WHAT.get(axis, 'training')}", fontsize=9)
        axes_of_one.tick_params(labelsize=7, which="both")
        axes_of_one.grid(alpha=0.3)
        axes_of_one.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return None
