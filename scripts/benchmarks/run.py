"""Runs the sections, one after another, and writes what they gave."""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks import machine
from benchmarks.ceilings import measure_ceilings
from benchmarks.measuring import Budget
from benchmarks.plot import plot_growth
from benchmarks.rows import Row, Section
from benchmarks.setting import Ceilings, Scale, Setting
from benchmarks.table import markdown

SECTIONS = ("training", "attention", "images", "decoding", "translation", "growth")
BUDGETS: dict[Scale, float] = {"full": 270.0, "quick": 25.0, "tiny": 60.0}
"""Seconds a section, where nobody says otherwise."""


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    sections: Sequence[str]
    scale: Scale
    out: Path
    device: torch.device
    budget: float | None
    command: str
    checkpoint: str | None = None
    sentences: Path | None = None


def run(options: Options) -> int:
    """Exit code: 0, or 1 where a section or a row of it failed."""
    warnings.filterwarnings("ignore", category=FutureWarning)  # of the peers' own code
    warnings.filterwarnings("ignore", category=UserWarning)
    info = machine.describe(options.device)
    old = kept(options, info)
    ceilings = measure_ceilings(options.device, tiny=options.scale == "tiny")
    found: list[Section] = []
    for number, name in enumerate(options.sections):
        ahead = (len(options.sections) - number - 1) * budget(options).seconds
        found.append(run_section(name, options, ceilings, ahead))
        by_name = {section.name: section for section in (*old, *found)}
        ordered = [by_name[key] for key in SECTIONS if key in by_name]
        write(options.out, info, ordered, ceilings)  # after each, so that a stop loses little
    failed = [section.name for section in found if section.failed]
    for name in failed:
        print(f"bench: {name} did not go through; the table says why", file=sys.stderr)
    return 1 if failed else 0


def budget(options: Options) -> Budget:
    seconds = BUDGETS[options.scale] if options.budget is None else options.budget
    if options.scale == "tiny":
        return Budget(seconds, min_rounds=2, max_rounds=2, call_s=0.0, wait_s=0.0)
    return Budget(seconds)


def run_section(name: str, options: Options, ceilings: Ceilings, ahead: float) -> Section:
    """One section's tables; an error ends it, not the run. ahead: seconds of later sections."""
    module = importlib.import_module(f"benchmarks.{name}")
    allowed = budget(options)

    def say(title: str) -> None:
        left = max(0.0, allowed.left) + ahead
        print(
            f"bench: {name}, about {left // 60:.0f} min {int(left % 60):02d} s left: {title}",
            file=sys.stderr,
            flush=True,
        )

    setting = Setting(
        device=options.device,
        scale=options.scale,
        budget=allowed,
        ceilings=ceilings,
        say=say,
        checkpoint=options.checkpoint,
        sentences=options.sentences,
    )
    day = datetime.now().strftime("%Y-%m-%d")
    section = Section(name, day, options.command, commit=machine.commit())
    torch.manual_seed(0)
    start = time.monotonic()
    try:
        for table in module.run(setting):
            table.rows = [checked(row) for row in table.rows]
            section.tables.append(table)
    except Exception as error:
        section.error = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    section.seconds = time.monotonic() - start
    return section


def checked(row: Row) -> Row:
    """The row; a failed one in its place where a figure of it is no finite number."""
    figures = [row.median_s, row.min_s, row.rate, row.ratio, row.peak_mib, *row.extra.values()]
    if all(math.isfinite(figure) for figure in figures if figure is not None):
        return row
    return row.gone("failed", "a figure is not finite")


def kept(options: Options, info: dict[str, Any]) -> list[Section]:
    """Sections of an earlier run into the same folder that are not run now.

    Only those of the same machine and versions: what stands in one table was measured alike.
    """
    path = options.out / "bench.json"
    if set(options.sections) == set(SECTIONS) or not path.is_file():
        return []
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["machine"] != info:
        return []
    sections = [Section.from_data(section) for section in data["sections"]]
    return [section for section in sections if section.name not in options.sections]


def write(out: Path, info: dict[str, Any], sections: Sequence[Section], ceilings: Ceilings) -> None:
    """bench.json, bench.md, and growth.png where growth was measured."""
    out.mkdir(parents=True, exist_ok=True)
    data = {
        "machine": info,
        "ceilings": asdict(ceilings),
        "gpu": info["device"] if "cuda" in info else "not measured on a GPU",
        "sections": [section.as_data() for section in sections],
    }
    (out / "bench.json").write_text(
        json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    page = markdown(info, sections, data["ceilings"])
    for section in sections:
        if section.name == "growth":
            why = plot_growth(section, out / "growth.png")
            page += f"\nNo plot: {why}\n" if why else "\n![growth](growth.png)\n"
    (out / "bench.md").write_text(page, encoding="utf-8")
