"""Runs the sections, compares the figures with the goals, and writes bench.json and bench.md."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.goals import goals
from benchmarks.measure import Table
from benchmarks.setting import Setting, cpu_field, missing

PEERS = ("torch", "transformers", "x_transformers")
METHOD = """Cases of a table are timed in turn, round by round. A ratio is the median of the ratios
within a round; its spread is their interquartile range over the median. A round is noisy if other
processes used more than 5 % of the machine."""


def run(setting: Setting, sections: Sequence[str], out: Path) -> int:
    """Exit code: 1 where a case failed, else 0."""
    warnings.filterwarnings("ignore")  # of the peers' own code
    torch.manual_seed(0)
    start = time.monotonic()
    tables: list[Table] = []
    for name in sections:
        tables += importlib.import_module(f"benchmarks.{name}").run(setting)
    about = machine(setting) | {"minutes": round((time.monotonic() - start) / 60, 1)}
    by_key = {table.key: table for table in tables}
    results = [goal.result(by_key) for goal in goals(setting) if goal.table in by_key]
    data = {"machine": about, "goals": results, "tables": [asdict(table) for table in tables]}
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    (out / "bench.json").write_text(text + "\n", encoding="utf-8")
    summary = "\n".join(["| figure | measured | goal | met |", "|---|---:|---:|---|"])
    for result in results:
        summary += "\n" + line([cell(value) for value in result.values()])
    lines = [f"- {key}: {value}" for key, value in about.items()]
    page = "\n\n".join([summary, "\n".join(lines), METHOD, *map(table_lines, tables)])
    (out / "bench.md").write_text(page + "\n", encoding="utf-8")
    print(f"{summary}\n\ndetails: {out / 'bench.md'}")
    failed = [f"{table.title}: {row.name}" for table in tables for row in table.rows if row.failed]
    for name in failed:
        print(f"bench: failed: {name}; bench.md says why", file=sys.stderr)
    return 1 if failed else 0


def machine(setting: Setting) -> dict[str, Any]:
    """Where, when and with what was measured."""
    on_gpu = setting.device.type == "cuda"
    return {
        "command": " ".join(["scripts/bench", *sys.argv[1:]]),
        "date": datetime.now().strftime("%Y-%m-%d"),
        "commit": subprocess.getoutput(f"git -C {Path(__file__).parent} rev-parse --short HEAD"),
        "device": torch.cuda.get_device_name(setting.device) if on_gpu else "CPU",
        "processor": cpu_field("model name") or platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "bf16": setting.without_bf16 or "measured",
        "python": platform.python_version(),
        **{name: missing(name) or version(name) for name in PEERS},
    }


def table_lines(table: Table) -> str:
    """Heading, header and rows; columns without any figure are left out."""
    rows = table.rows
    columns: dict[str, list[float | None]] = {
        f"ratio to {table.base}": [row.ratio for row in rows],
        "spread, %": [None if row.spread is None else 100 * row.spread for row in rows],
        "median, ms": [row.milliseconds for row in rows],
        f"{table.unit}/s": [row.rate for row in rows],
    }
    for name in dict.fromkeys(name for row in rows for name in row.extra):
        columns[name] = [row.extra.get(name) for row in rows]
    columns = {name: cells for name, cells in columns.items() if any(c is not None for c in cells)}
    lines = [f"### {table.title}", ""]
    if table.rounds:
        lines += [f"{table.rounds} rounds, {table.noisy} noisy.", ""]
    lines += [line(["", *columns]), "|---|" + "---:|" * len(columns)]
    for index, row in enumerate(rows):
        name = f"{row.name} ({row.problem})" if row.problem else row.name
        lines.append(line([name, *(cell(column[index]) for column in columns.values())]))
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "/") for text in cells) + " |"


def cell(value: str | float | None) -> str:
    """Three significant digits; thousands separated."""
    if value is None or isinstance(value, str):
        return value or ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"
