"""`triptych report RUN [RUN ...]`: runs as one HTML file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych.cli.options import read_options
from triptych.domains.options import OVERWRITE, CommandOptions, argument
from triptych.files.results import check_result_file
from triptych.types import PositiveInt

MOST_NAMED = 4
"""Runs whose names are the title of the page; the title of more runs is their number."""


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Write one HTML file about a run, or about several side by side.

    It has settings, curves, samples, attention, statistics and versions, and needs no network. Runs
    may be unfinished.
    """

    runs: list[str]
    out: str
    """HTML file to write."""
    title: str | None = None
    """Title of the page; null for the names of the runs, or the number of many."""
    steps: PositiveInt = 12
    """Largest number of validations of a run whose samples are shown, evenly spaced with the first
    and the last."""
    overwrite: bool = False

    parser_arguments = OVERWRITE | argument("runs", "Folder of a run.", nargs="+", metavar="RUN")


def run(arguments: Sequence[str]) -> int:
    """Write the page; raises UserError before the file is written."""
    options = read_options("report", arguments)
    out = check_result_file(options.out, "out", replaces=options.overwrite)

    from triptych.files.results import write_atomically
    from triptych.tools.report.page import report
    from triptych.tools.report.run import read_runs

    runs = read_runs([Path(folder) for folder in options.runs], most=options.steps)
    named = ", ".join(run.name for run in runs)
    title = options.title or (named if len(runs) <= MOST_NAMED else f"{len(runs)} runs")
    content = report(runs, title=title)
    write_atomically(out, content)
    for shown in runs:
        for notice in shown.notices:
            print(f"{shown.name}: {notice}", file=sys.stderr)
    print(f"{out} ({len(content) / 1e6:.1f} MB)", file=sys.stderr)
    return 0
