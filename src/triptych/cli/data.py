"""`triptych data list` and `triptych data fetch NAME`: public data sets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from triptych.cli.plain import PlainParser
from triptych.cli.progress import ProgressLine
from triptych.datasets import catalogue
from triptych.errors import UserError, meant

_USAGE = """\
usage: triptych data list
       triptych data fetch NAME [--out DIR] [--url ADDRESS]
"""
ACTIONS = ("list", "fetch")


def fetch_parser() -> argparse.ArgumentParser:
    """Return the parser of `triptych data fetch`."""
    made = PlainParser(
        prog="triptych data fetch",
        usage="triptych data fetch NAME [--out DIR] [--url ADDRESS]",
        description="Download a public data set. Every file is checked by its sha256 and appears "
        "when it is complete. After an interruption the same command continues; files that are "
        "there already are left alone. The data keep their publishers' terms of use.",
    )
    made.add_argument("name", metavar="NAME", help="Name of the data set; see triptych data list.")
    made.add_argument("--out", metavar="DIR", help="Folder of the files; by default data/NAME.")
    made.add_argument(
        "--url",
        metavar="ADDRESS",
        help="Address of another folder that holds the files, http, https or file. The environment "
        "variable TRIPTYCH_DATA_MIRROR names a mirror of all data sets: one folder for each NAME.",
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """List the data sets or download one; raises UserError."""
    action = arguments[0] if arguments else "--help"
    if action in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if action == "list":
        if len(arguments) > 1:
            raise UserError(f"data list: unexpected {arguments[1]!r}; expected nothing after list")
        print_list()
        return 0
    if action != "fetch":
        instead = meant(action, ACTIONS, f"expected {' or '.join(ACTIONS)}")
        raise UserError(f"data: unexpected {action!r}; {instead}")
    options = fetch_parser().parse_args(arguments[1:])
    data = catalogue.find(options.name)

    from triptych.datasets.fetch import fetch

    folder = Path(options.out or f"data/{data.name}")
    what = f"fetched kB of {data.name}"
    fetched = fetch(data, folder, url=options.url, start=lambda: ProgressLine(what))
    found = f"{len(fetched)} files fetched" if fetched else "all files are there already"
    print(f"{folder}: {found}; terms of use: {data.terms}", file=sys.stderr)
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
