"""`triptych report RUN [RUN ...]`: runs as one HTML file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from triptych.cli.main import plain_parser
from triptych.errors import UserError
from triptych.files.results import check_result_file

MOST_NAMED = 4
"""Runs whose names are the title of the page; the title of more runs is their number."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = plain_parser(
        "report",
        "Write one HTML file about a run, or about several side by side: settings, "
        "curves, samples, attention, statistics and versions. It needs no network. Runs may be "
        "unfinished.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="Folder of a run.")
    parser.add_argument(
        "--out", type=str, required=True, metavar="FILE", help="HTML file to write."
    )
    parser.add_argument(
        "--title",
        type=str,
        help="Title of the page; by default the names of the runs, or the number of many.",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=12,
        metavar="N",
        help="Largest number of validations of a run whose samples are shown, evenly spaced with "
        "the first and the last.",
    )
    parser.add_argument("--overwrite", action="store_true", help="Replace an existing --out.")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Write the page; raises UserError before the file is written."""
    options = parser().parse_args(arguments)
    if options.steps < 1:
        raise UserError(f"--steps must be at least 1, got {options.steps}")
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
