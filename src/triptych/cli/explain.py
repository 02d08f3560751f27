"""`triptych explain NAME`: figures of lectures, from the project's own classes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from triptych.errors import UserError
from triptych.files.progress import aligned
from triptych.tools.explain.figure import (
    ALL,
    MODELS,
    ExplainOptions,
    LectureFigure,
    descriptions,
    find_figure,
)

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

_HELP = f"""\
usage: triptych explain NAME --out DIR [OPTIONS]
       triptych explain --list

NAME is a figure below, or {ALL} for every one. `triptych explain NAME --help` shows the options.
"""
_OVERWRITE = "overwrite"


def parser() -> ArgumentParser:
    """Return the parser of the name and the options."""
    from triptych.config.schema import parser_for

    parser = parser_for(
        ExplainOptions,
        prog="triptych explain",
        description=ExplainOptions.description,
        config=False,
    )
    parser.usage = "%(prog)s NAME --out DIR [OPTIONS]"
    parser.add_argument("name", metavar="NAME", help=f"Name of a figure, or {ALL} for every one.")
    parser.add_argument("--list", action="store_true", help="Print the names of the figures.")
    parser.add_argument(
        f"--{_OVERWRITE}", action="store_true", help="Replace figures of the same names in --out."
    )
    return parser


def names() -> list[str]:
    """Return the names of the figures."""
    return [*descriptions(), ALL]


def run(arguments: Sequence[str]) -> int:
    """Draw figures into a folder, or print a text; raises UserError before any file is written."""
    import triptych
    from triptych.cli.options import check_checkpoint
    from triptych.config.schema import build, parse_settings
    from triptych.files.results import OutputFolder

    name = arguments[0] if arguments else ""
    if name in ("-h", "--help", "--list"):
        if name != "--list":
            print(_HELP)
        print(*aligned([*descriptions().items()]), sep="\n")
        return 0
    if not name or name.startswith("-"):
        raise UserError(
            f"explain needs the name of a figure{' before ' if name else ''}{name}: triptych "
            "explain NAME --out DIR (triptych explain --list shows the names)"
        )
    figures = [find_figure(one) for one in (descriptions() if name == ALL else [name])]
    values, locate = parse_settings(parser(), arguments)
    options = build(ExplainOptions, values, locate=locate)
    if name != ALL:
        figures[0].check_options(options)
    if options.checkpoint is not None:
        check_checkpoint(options.checkpoint)
    out = None
    if options.out is not None:
        out = OutputFolder(options.out, overwrite=bool(values.get(_OVERWRITE)))
        out.check_free([figure.file for figure in figures])
    elif any(figure.suffix != ".txt" for figure in figures):
        raise UserError(f"explain {name} needs a folder for its figure; give one with --out DIR")
    models: dict[str | None, Any] = {None: None}
    if options.checkpoint is not None:
        given = _open(options, figures)
        models[given.domain] = given
    for figure in figures:
        if figure.domain not in models:
            models[figure.domain] = triptych.load(MODELS[str(figure.domain)], device="cpu")
        content = figure.draw(options, models[figure.domain])
        if out is None:
            print(content.decode(), end="")
        else:
            print(out.write(figure.file, content), file=sys.stderr)
    return 0


def _open(options: ExplainOptions, figures: Sequence[LectureFigure]) -> Any:
    """Return the model of the options, which must be of a domain that a figure shows."""
    import triptych
    from triptych.cli.options import import_plugin

    import_plugin(options.plugin)
    domains = sorted({figure.domain for figure in figures if figure.domain is not None})
    assert options.checkpoint is not None
    one = domains[0] if len(domains) == 1 else None
    model = triptych.load(options.checkpoint, device="cpu", domain=one)
    if model.domain not in domains:
        raise UserError(
            f"--checkpoint {options.checkpoint} is of the domain {model.domain}; the figures show "
            f"models of {' and '.join(domains)}"
        )
    return model
