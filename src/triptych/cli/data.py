"""`triptych data`: lists public data sets and recipes, downloads the former, runs the latter."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from triptych.cli.main import PlainParser
from triptych.files.progress import ProgressLine, aligned
from triptych.tools import recipes
from triptych.tools.download import catalogue


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = PlainParser(prog="triptych data", description="Data sets to download or to make.")
    actions = parser.add_subparsers(
        dest="action", metavar="list | fetch NAME | make NAME", required=True
    )
    actions.add_parser(
        "list",
        usage="triptych data list",
        description="Print name, size, content and terms of use of every data set, and what the "
        "recipes write.",
        help="list the data sets and the recipes",
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
    make = actions.add_parser(
        "make",
        usage="triptych data make NAME [--out DIR] [OPTIONS]",
        description="Run a recipe, a program that writes the text files of a shipped config into a "
        "new folder, by default data/NAME. Its recipe.json says how they were made. "
        "`triptych data make NAME --help` shows the options of a recipe.",
        help="run a recipe",
    )
    make.add_argument("name", metavar="NAME", help="Name of the recipe; see triptych data list.")
    return parser


def names() -> list[str]:
    """Return the names of the data sets and of the recipes."""
    return [*catalogue.read(), *recipes.names()]


def run(arguments: Sequence[str]) -> int:
    """List the data sets, download one or run a recipe; raises UserError."""
    if arguments[:1] == ["make"] and len(arguments) > 1 and not arguments[1].startswith("-"):
        folder = recipes.make(arguments[1], arguments[2:])
        print(f"{folder}: {recipes.PROVENANCE} says how its files were made", file=sys.stderr)
        return 0
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
    """Print name, size, content and terms of every data set, and the recipes."""
    rows = []
    for name, data in catalogue.read().items():
        rows += [(name, f"{data.size / 1e6:6.1f} MB", data.about), ("", "", data.terms)]
    print(*aligned(rows), sep="\n")
    print("\ntriptych data fetch NAME downloads one into data/NAME\n")
    print(*aligned([(name, recipes.about(name)) for name in recipes.names()]), sep="\n")
    print("\ntriptych data make NAME writes the files of one into data/NAME")
