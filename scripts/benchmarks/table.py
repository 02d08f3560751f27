"""The results as Markdown that can be pasted into the README: ratios first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.rows import Row, Section, Table
from benchmarks.summary import summary

HEADINGS = {
    "training": "Training steps",
    "attention": "Attention alone",
    "images": "Pictures",
    "decoding": "Decoding",
    "translation": "Translation",
    "growth": "Growth with the work",
}


def markdown(machine: dict[str, Any], sections: Sequence[Section], ceilings: dict[str, Any]) -> str:
    """One page: the machine, the summary of ratios, then every table."""
    parts = [machine_lines(machine, sections, ceilings), summary_lines(sections)]
    for section in sections:
        parts.append(f"### {HEADINGS[section.name]}")
        if section.name == "growth":
            parts += growth(section)
        else:
            parts += [table_lines(table) for table in section.tables]
        if section.error:
            parts.append(f"**This section ended early:** {section.error}")
    return "\n\n".join(part for part in parts if part) + "\n"


def machine_lines(
    machine: dict[str, Any], sections: Sequence[Section], ceilings: dict[str, Any]
) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    dates = sorted({section.date for section in sections})
    commits = ", ".join(sorted({section.commit for section in sections}))
    flops = ", ".join(f"{name} {value / 1e9:,.0f}" for name, value in ceilings["flops"].items())
    commands = sorted({section.command for section in sections})
    where = (
        f"Measured on a GPU: {machine['device']}, CUDA {machine['cuda']}."
        if "cuda" in machine
        else "Not measured on a GPU."
    )
    peak = "that of the call" if "cuda" not in machine else "with inputs, weights and optimizer"
    return "\n".join(
        [
            "## Measured side by side",
            "",
            f"{where} {machine['processor']}, {machine['cores']} cores, {machine['threads']} "
            f"threads ({', '.join(machine['flags']) or machine['capability']}), {machine['system']}"
            f", Python {machine['python']}; {versions}; commit {commits}; "
            f"{', '.join(dates)}; `{'`, `'.join(commands)}`. Products: {flops} GFLOP/s; "
            f"reading {ceilings['bytes_per_s'] / 1e9:,.0f} GB/s.",
            "",
            "Rows of a table were measured in turn in one run, never a first call; ratios are of "
            "medians, over the quiet rounds (other processes used less than 5 % of the machine) "
            "where every row has 3. Peak memory is " + peak + ".",
        ]
    )


def summary_lines(sections: Sequence[Section]) -> str:
    lines = summary(sections)
    if not lines:
        return ""
    body = [f"| {line.what} | {number(line.value)} | {line.goal} |" for line in lines]
    return "\n".join(["| in short | measured | goal |", "|---|---|---|", *body])


def table_lines(table: Table) -> str:
    """Heading, header and rows; columns that no row fills are left out."""
    rows = table.rows
    extras = list(dict.fromkeys(name for row in rows for name in row.extra))
    columns: list[tuple[str, list[str]]] = [("", [row.name for row in rows])]
    if any(row.ratio is not None for row in rows):
        columns.append((f"x {table.base}", [cell(row.ratio, row) for row in rows]))
    columns += [(name, [cell(row.extra.get(name), row) for row in rows]) for name in extras]
    if any(row.rate is not None for row in rows):
        columns.append((f"{table.unit}/s", [cell(row.rate, row) for row in rows]))
    if any(row.median_s is not None for row in rows):
        columns.append(("median, ms", [milliseconds(row.median_s, row) for row in rows]))
        columns.append(("min, ms", [milliseconds(row.min_s, row) for row in rows]))
    if any("compiled" in row.name and row.first_s for row in rows):
        columns.append(("first call, s", [cell(row.first_s, row) for row in rows]))
    if any(row.peak_mib is not None for row in rows):
        columns.append(("peak, MiB", [cell(row.peak_mib, row) for row in rows]))
    columns.append(("quiet of rounds", [rounds(row) for row in rows]))
    if not any(row.rounds for row in rows) and len(columns) > 2:
        columns.pop()
    lines = [
        f"**{table.title}**" + (f" ({table.note})" if table.note else ""),
        "",
        "| " + " | ".join(head for head, _ in columns) + " |",
        "|" + "---|" * len(columns),
    ]
    for index, row in enumerate(rows):
        cells = [column[index] for _, column in columns]
        if row.state != "measured":
            cells = [cells[0], f"{row.state}: {row.why}", *[""] * (len(columns) - 2)]
        lines.append("| " + " | ".join(text.replace("|", "/") for text in cells) + " |")
    return "\n".join(lines)


def growth(section: Section) -> list[str]:
    """One table an axis: rows by name, a column for each value, time a token or a pixel."""
    axes: dict[str, list[Table]] = {}
    for table in section.tables:
        axes.setdefault(table.sizes["axis"], []).append(table)
    parts = []
    for axis, tables in axes.items():
        unit = tables[0].unit.rstrip("s")
        head = [f"µs a {unit}, {axis}", *(str(table.sizes["value"]) for table in tables)]
        lines = [f"**{tables[0].title.rpartition(f', {axis} ')[0]}, fp32**", ""]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for name in dict.fromkeys(row.name for table in tables for row in table.rows):
            cells = [name, *(growth_cell(table, name) for table in tables)]
            lines.append("| " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return parts


def growth_cell(table: Table, name: str) -> str:
    for row in table.rows:
        if row.name == name:
            return number(1e6 / row.rate) if row.rate else f"{row.state}: {row.why}"
    return ""


def rounds(row: Row) -> str:
    if not row.rounds:
        return ""
    return f"{'?' if row.quiet is None else row.quiet} of {row.rounds}"


def milliseconds(seconds: float | None, row: Row) -> str:
    return cell(None if seconds is None else 1e3 * seconds, row)


def cell(value: float | None, row: Row) -> str:
    return "" if value is None or row.state != "measured" else number(value)


def number(value: float) -> str:
    """Three digits that count, thousands set apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"
