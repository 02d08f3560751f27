"""`triptych data list` and `triptych data fetch NAME`: public data sets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from triptych.cli.main import PlainParser
from triptych.files.progress import ProgressLine
from triptych.tools.download import catalogue


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = PlainParser(prog="triptych data", description="Public data sets.")
    actions = parser.add_subparsers(dest="action", metavar="list | fetch NAME", required=True)
    actions.add_parser(
        "list",
        usage="triptych data list",
        description="Print name, size, content and terms of use of every data set.",
        help="list the data sets",
    )
    fetch = actions.add_parser(
        "fetch",
        usage="triptych data fetch NAME [--out DIR] [--url ADDRESS]",
        description="Download a public data set. Every file is checked by its sha256 and appears "
        "when it is complete. Files that are there are left alone, so that the same command "
        "continues after an interruption. The data keep their publishers' terms of use.",
        help="download one",
    )
    fetch.add_argument("name", metavar="NAME", help="Name of the data set; see triptych data list.")
    fetch.add_argument("--out", metavar="DIR", help="Folder of the files; by default data/NAME.")
    fetch.add_argument(
        "--url",
        metavar="ADDRESS",
        help="Address of another folder that holds the files, http, https or file. The environment "
        "variable TRIPTYCH_DATA_MIRROR names a mirror of all data sets: one folder for each NAME.",
    )
    return parser


def names() -> list[str]:
    """Return the names of the data sets."""
    return list(catalogue.read())


def run(arguments: Sequence[str]) -> int:
    """List the data sets or download one; raises UserError."""
    options = parser().parse_args(arguments or ["--help"])
    if options.action == "list":
        print_list()
        return 0
    data = catalogue.find(options.name)

    from triptych.tools.download.fetch import fetch

    folder = Path(options.out or f"data/{data.name}")
    what = f"fetched kB of {data.name}"
    fetched = fetch(data, folder, url=options.url, start=lambda: ProgressLine(what))
    outcome = f"{len(fetched)} files fetched" if fetched else "all files are there already"
    print(f"{folder}: {outcome}; terms of use: {data.terms}", file=sys.stderr)
    print(data.command(folder))
    return 0


def print_list() -> None:
    """Print name, size, content and terms of every data set."""
    sets = catalogue.read()
    width = max(map(len, sets))
    for name, data in sets.items():
        print(f"{name:<{width}}  {data.size / 1e6:6.1f} MB  {data.about}")
        print(f"{'':<{width}}             {data.terms}")
    print("\ntriptych data fetch NAME downloads one into data/NAME")
