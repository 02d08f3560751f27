"""`triptych explain NAME`: figures of lectures, from the project's own classes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from triptych.errors import UserError
from triptych.tools.explain.registry import ALL, check_name, descriptions, find_figure

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from triptych.tools.explain.figure import ExplainOptions, Figure

_HELP = f"""\
usage: triptych explain NAME --out DIR [OPTIONS]
       triptych explain --list

NAME is a figure below, or {ALL} for every one. `triptych explain NAME --help` shows the options.
"""
_OVERWRITE = "overwrite"


def parser() -> ArgumentParser:
    """Return the parser of the name and the options."""
    from triptych.config.parser import parser_for
    from triptych.tools.explain.figure import ExplainOptions

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
    """Draw figures into a folder, or print a text; raises UserError for bad input."""
    first = arguments[0] if arguments else None
    if first is None:
        raise UserError(
            "explain needs the name of a figure: triptych explain NAME --out DIR (triptych explain "
            "--list shows the names)"
        )
    if first in ("-h", "--help", "--list"):
        if first != "--list":
            print(_HELP)
        sentences = descriptions()
        width = max(map(len, sentences))
        for name, sentence in sentences.items():
            print(f"{name:<{width}}  {sentence}")
        return 0
    if first.startswith("-"):
        raise UserError(f"explain needs the name of a figure before {first}")
    check_name(first)
    return draw(first, arguments)


def draw(name: str, arguments: Sequence[str]) -> int:
    """Make one figure or all of them; raises UserError before any file is written.

    arguments: of the command, with the name.
    """
    from triptych.cli.options import check_checkpoint
    from triptych.config.parser import parse_settings
    from triptych.config.schema import build
    from triptych.files.results import OutputFolder
    from triptych.tools.explain.figure import ExplainOptions

    values, locate = parse_settings(parser(), arguments)
    options = build(ExplainOptions, values, locate=locate)
    figures = {one: find_figure(one) for one in (descriptions() if name == ALL else [name])}
    if name != ALL:
        figures[name].check_options(name, options)
    if options.checkpoint is not None:
        check_checkpoint(options.checkpoint)
    out = None
    if options.out is not None:
        out = OutputFolder(options.out, overwrite=bool(values.get(_OVERWRITE)))
        out.check_free([file for figure in figures.values() for file in figure.files])
    elif not all(figure.is_text for figure in figures.values()):
        raise UserError(f"explain {name} needs a folder for its figure; give one with --out DIR")
    models: dict[str, Any] = {}
    given = _open(options, figures) if options.checkpoint is not None else None
    for figure in figures.values():
        for file, content in figure.draw(options, _model_of(figure, given, models)).items():
            if out is None:
                print(content.decode(), end="")
            else:
                print(f"{out.write(file, content)}", file=sys.stderr)
    return 0


def _open(options: ExplainOptions, figures: dict[str, Figure]) -> Any:
    """Return the model of the options, which must be of a domain that a figure shows."""
    import triptych
    from triptych.cli.options import import_plugin

    import_plugin(options.plugin)
    domains = sorted({figure.domain for figure in figures.values() if figure.domain is not None})
    assert options.checkpoint is not None
    one = domains[0] if len(domains) == 1 else None
    model = triptych.load(options.checkpoint, device="cpu", domain=one)
    if model.domain not in domains:
        raise UserError(
            f"--checkpoint {options.checkpoint} is of the domain {model.domain}; the figures show "
            f"models of {' and '.join(domains)}"
        )
    return model


def _model_of(figure: Figure, given: Any, models: dict[str, Any]) -> Any:
    """Return the model that a figure shows: the given one or its pretrained one, opened once."""
    import triptych

    if figure.domain is None or figure.pretrained is None:
        return None
    if given is not None and given.domain == figure.domain:
        return given
    if figure.pretrained not in models:
        models[figure.pretrained] = triptych.load(figure.pretrained, device="cpu")
    return models[figure.pretrained]
