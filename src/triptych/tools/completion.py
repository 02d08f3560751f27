"""Scripts that complete commands, names and options in a shell.

A script is made once, from the parsers themselves, so that nothing of Triptych runs at a TAB.
(jsonargparse's own script has every argument of every kind of part: hundreds of megabytes.)
"""

import argparse
import shlex
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from triptych import domains, pretrained
from triptych.config.messages import class_in, is_part, subclass_paths, typed_actions
from triptych.tools import configs


def command_line(
    commands: Mapping[str, Any], parser_of: Callable[..., argparse.ArgumentParser]
) -> argparse.ArgumentParser:
    """Return one parser of all commands, with their domains as inner commands.

    commands: rows of the table in `triptych.cli.main`, by name. parser_of: returns the parser of a
    command, of its name and domain.
    """
    root = argparse.ArgumentParser(prog="triptych")
    root.add_argument("--version", action="version", version="")
    added = root.add_subparsers()
    for command in commands.values():
        about: dict[str, Any] = {"help": command.help.replace("%", "%%"), "add_help": False}
        if not command.needs_domain:
            names: Sequence[str] = getattr(command.load(), "names", tuple)()
            parser = _with_values(parser_of(command.name), names)
            added.add_parser(command.name, parents=[parser], **about)
            continue
        offering = command.domains()
        parsers = {
            name: _with_values(parser_of(command.name, domains.find_domain(name)), domain=name)
            for name in offering
        }
        only = [*parsers.values()] if len(offering) == 1 else []  # the domain may be left out
        inner = added.add_parser(command.name, parents=only, **about).add_subparsers()
        for name, parser in parsers.items():
            inner.add_parser(name, parents=[parser], help=f"{command.name} {name}", add_help=False)
    return root


def _with_values(
    parser: argparse.ArgumentParser, names: Sequence[str] = (), domain: str = ""
) -> argparse.ArgumentParser:
    """Return a parser whose arguments say which values they take, with short help texts.

    names: values of an argument `name`. domain: whose shipped configs --config takes.
    """
    import shtab

    for action, hint in typed_actions(parser):
        if action.help not in (None, argparse.SUPPRESS):
            short = " ".join(str(action.help).split()).partition(". ")[0]
            action.help = short.replace("%%", "%").replace("%", "%%")
        complete: Any = None
        if action.dest == "config":
            complete = _names(f"config_{domain}", configs.find_all(domain))
        elif action.dest == "checkpoint":
            models = [f"{pretrained.PREFIX}{model}" for model in pretrained.names()]
            complete = _names("checkpoint", models)
        elif action.dest == "name" and names:
            action.choices = names
        elif action.nargs != 0 and not action.choices:
            action.choices = _values(hint) or None
            complete = None if action.choices else shtab.FILE
        if complete is not None:
            action.complete = complete  # type: ignore[attr-defined]
    return parser


def _values(hint: Any) -> list[str]:
    """Return the values of a type that can be listed: words, true and false, names of classes."""
    part = class_in(hint) if hint is not None else None
    if part is not None and is_part(part):
        return [path.rpartition(".")[2] for path in subclass_paths(part)]
    if get_origin(hint) in (Union, types.UnionType):
        return [value for each in get_args(hint) for value in _values(each)]
    if get_origin(hint) is Literal:
        return [str(value) for value in get_args(hint)]
    return ["true", "false"] if hint is bool else []


def _names(kind: str, names: Iterable[str]) -> dict[str, Any]:
    """Return how shells complete names as well as files. kind: ends the name of the function."""
    function = f"_triptych_{kind}"
    words = " ".join(map(shlex.quote, names))
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({function})",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "{words}" -- "$1"; compgen -f -- "$1"; }}',
            "zsh": f"{function}() {{ compadd -- {words}; _files; }}",
            "fish": f"function {function}\n  printf '%s\\n' {words}\n"
            "  __fish_complete_path (commandline -ct)\nend",
        },
    }
