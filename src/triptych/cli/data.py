"""`triptych data`: lists public data sets and recipes, downloads the former, runs the latter."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych.cli.options import read_options
from triptych.domains.options import CommandOptions, argument
from triptych.errors import UserError
from triptych.files.progress import aligned
from triptych.tools import recipes
from triptych.tools.download import catalogue


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """List data sets, download one or make one.

    list: print name, size, content and terms of use of every data set, and what the recipes write.

    fetch NAME: download a public data set. Every file is checked by its sha256 and appears when it
    is complete. Files that are there are left alone, so that the same command continues after an
    interruption. The data keep their publishers' terms of use.

    make NAME: run a recipe, a program that writes the text files of a shipped config into a new
    folder. Its recipe.json says how they were made. `triptych data make NAME --help` shows the
    options of a recipe.
    """

    action: str
    name: str | None = None
    out: str | None = None
    """Folder of the files; null for data/NAME."""
    url: str | None = None
    """Address of another folder that holds the files to fetch, http, https or file. The environment
    variable TRIPTYCH_DATA_MIRROR names a mirror of all data sets: one folder for each NAME."""

    parser_arguments = argument(
        "action", "What to do.", choices=["list", "fetch", "make"]
    ) | argument("name", "Name that triptych data list prints.", nargs="?", metavar="NAME")


def names() -> list[str]:
    """Return the names of the data sets and of the recipes."""
    return [*catalogue.read(), *recipes.names()]


def run(arguments: Sequence[str]) -> None:
    """List the data sets, download one or run a recipe; raises UserError."""
    if arguments[:1] == ["make"] and len(arguments) > 1 and not arguments[1].startswith("-"):
        folder = recipes.make(arguments[1], arguments[2:])
        print(f"{folder}: {recipes.PROVENANCE} says how its files were made", file=sys.stderr)
        return
    options = read_options("data", arguments or ["--help"])
    if options.action == "make" or (options.action == "list") != (options.name is None):
        raise UserError("expected data list, data fetch NAME, or data make NAME [OPTIONS]")
    if options.action == "list":
        rows = []
        for name, data in catalogue.read().items():
            rows += [(name, f"{data.size / 1e6:6.1f} MB", data.about), ("", "", data.terms)]
        print(*aligned(rows), sep="\n")
        print("\ntriptych data fetch NAME downloads one into data/NAME\n")
        print(*aligned([(name, recipes.about(name)) for name in recipes.names()]), sep="\n")
        print("\ntriptych data make NAME writes the files of one into data/NAME")
        return
    data = catalogue.find(options.name)

    from triptych.tools.download.fetch import fetch

    folder = Path(options.out or f"data/{data.name}")
    fetched = fetch(data, folder, url=options.url)
    outcome = f"{len(fetched)} files fetched" if fetched else "all files are there already"
    print(f"{folder}: {outcome}; terms of use: {data.terms}", file=sys.stderr)
    print(data.command(folder))
