"""`triptych completion SHELL`: a script that completes commands, names and options in a shell.

The script is made once, from the parsers themselves, so that nothing of Triptych runs at a TAB.
"""

from __future__ import annotations

import argparse
import shlex
import types
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from triptych import domains, pretrained, shipped_configs
from triptych.cli.main import COMMANDS, PlainParser
from triptych.errors import UserError

SHELLS = ("bash", "zsh", "fish")
FILES = ("data", "out", "json", "given", "complete", "mask", "upscale", "melody", "primer")
"""Options that name a file or a folder, besides those that end in one of PATH_ENDINGS."""
PATH_ENDINGS = ("directory", "file", "files", "packed", "init_from", "word_vectors")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = PlainParser(
        prog="triptych completion",
        usage="triptych completion bash|zsh|fish",
        description="Print a script that completes commands, domains, names of configs and "
        "options at a TAB. It is made in some seconds from this version's options; make it again "
        "after an update.",
        epilog="bash: triptych completion bash > ~/.local/share/bash-completion/completions/"
        "triptych; zsh: triptych completion zsh > a folder of $fpath/_triptych; fish: triptych "
        "completion fish > ~/.config/fish/completions/triptych.fish",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish.")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Print the script; raises UserError where the library shtab is missing."""
    shell = parser().parse_args(arguments).shell
    try:
        import shtab
    except ImportError as error:
        raise UserError(
            "completion needs shtab, which is not installed: pip install 'triptych[completion]'"
        ) from error
    print(shtab.complete(command_line(), shell))
    return 0


def command_line() -> argparse.ArgumentParser:
    """Return one parser of all commands, with their domains as inner commands."""
    root = argparse.ArgumentParser(prog="triptych")
    root.add_argument("--version", action="version", version="")
    added = root.add_subparsers()
    for command in COMMANDS.values():
        target = added.add_parser(command.name, help=command.help.replace("%", "%%"))
        module = command.load()
        if not command.needs_domain:
            names = module.names() if hasattr(module, "names") else []
            _copy(module.parser(), target, names=names)
            continue
        offering = {name: module.parser(domains.find_domain(name)) for name in command.domains()}
        inner = target.add_subparsers()
        if len(offering) == 1:  # the domain may be left out
            for name, source in offering.items():
                _copy(source, target, domain=name)
        for name, source in offering.items():
            domain_parser = inner.add_parser(name, help=f"{command.name} {name}")
            _copy(source, domain_parser, domain=name)
    return root


def _copy(
    source: argparse.ArgumentParser,
    target: argparse.ArgumentParser,
    *,
    domain: str = "",
    names: Sequence[str] = (),
) -> None:
    """Add the words and options of a parser to another, with their values; names: of a word."""
    for action in source._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = target.add_subparsers()
            for word, parser_of_word in action.choices.items():
                _copy(parser_of_word, inner.add_parser(word, help=word), names=names)
        elif not action.option_strings:
            choices = names if action.dest == "name" else action.choices
            copied = target.add_argument(action.dest, nargs=action.nargs, choices=choices)
            if choices is None:
                _add_files(copied)
        elif action.help != argparse.SUPPRESS and action.dest != "help":
            _copy_option(action, target, domain)


def _copy_option(action: argparse.Action, target: argparse.ArgumentParser, domain: str) -> None:
    """Add an option with the values that it takes. domain: whose shipped configs it takes."""
    text = " ".join((action.help or action.dest).split()).partition(". ")[0]
    text = text.replace("%%", "%").replace("%", "%%")
    if action.nargs == 0:
        target.add_argument(*action.option_strings, help=text, action="store_true")
        return
    copied = target.add_argument(*action.option_strings, help=text)
    name = action.dest.rpartition(".")[2]
    if action.dest == "config":
        _add_names(copied, f"config_{domain}", shipped_configs.find_all(domain))
    elif action.dest == "checkpoint":
        given = [f"{pretrained.PREFIX}{model}" for model in pretrained.names()]
        _add_names(copied, "checkpoint", given)
    elif name in FILES or name.endswith(PATH_ENDINGS):
        _add_files(copied)
    else:
        copied.choices = _values(getattr(action, "_typehint", None)) or action.choices


def _values(hint: Any) -> list[str]:
    """Return the values of a type that can be listed: words, true and false, names of classes."""
    from triptych.config.messages import class_in, is_part, subclass_paths

    part = class_in(hint) if hint is not None else None
    if part is not None and is_part(part):
        return [path.rpartition(".")[2] for path in subclass_paths(part)]
    if get_origin(hint) in (Union, types.UnionType):
        return [value for each in get_args(hint) for value in _values(each)]
    if get_origin(hint) is Literal:
        return [str(value) for value in get_args(hint)]
    return ["true", "false"] if hint is bool else []


def _add_files(action: argparse.Action) -> None:
    """Let an option complete names of files."""
    import shtab

    action.complete = shtab.FILE  # type: ignore[attr-defined]


def _add_names(action: argparse.Action, kind: str, names: Iterable[str]) -> None:
    """Let an option complete names as well as files. kind: ends the name of the shell function."""
    function = f"_triptych_{kind}"
    words = " ".join(map(shlex.quote, names))
    action.complete = {  # type: ignore[attr-defined]
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
