"""`triptych explain NAME`: figures of lectures, from the project's own classes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import triptych
from triptych.cli.options import read_options
from triptych.errors import UserError
from triptych.files.progress import aligned
from triptych.files.results import OutputFolder
from triptych.tools.explain.figure import ALL, MODELS, descriptions, find_figure
from triptych.tools.explain.figure import ExplainOptions as Options

__all__ = ["Options", "names", "run"]


def names() -> list[str]:
    """Return the names of the figures."""
    return [*descriptions(), ALL]


def run(arguments: Sequence[str]) -> None:
    """Draw figures into a folder, or print a text; raises UserError before any file is written."""
    if not arguments:
        print(*aligned([*descriptions().items()]), sep="\n")
        return

    options = read_options("explain", arguments)
    name = options.name
    figures = [find_figure(one) for one in (descriptions() if name == ALL else [name])]
    if name != ALL:
        figures[0].check_options(options)
    out = None
    if options.out is not None:
        out = OutputFolder(options.out, overwrite=options.overwrite)
        out.check_free([figure.file for figure in figures])
    elif any(figure.suffix != ".txt" for figure in figures):
        raise UserError(f"explain {name} needs a folder for its figure; give one with --out DIR")
    models: dict[str | None, Any] = {None: None}
    if options.checkpoint is not None:
        given = triptych.load(options.checkpoint, device="cpu")
        shown = sorted({figure.domain for figure in figures if figure.domain is not None})
        if given.domain not in shown:
            raise UserError(
                f"--checkpoint {options.checkpoint} is of the domain {given.domain}; the figures "
                f"show models of {' and '.join(shown)}"
            )
        models[given.domain] = given
    for figure in figures:
        if figure.domain not in models:
            models[figure.domain] = triptych.load(MODELS[str(figure.domain)], device="cpu")
        content = figure.draw(options, models[figure.domain])
        if out is None:
            print(content.decode(), end="")
        else:
            print(out.write(figure.file, content), file=sys.stderr)
