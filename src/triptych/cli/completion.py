"""`triptych completion SHELL`: a script that completes commands, names and options in a shell.

The script is made once, from the parsers themselves, so that nothing of Triptych runs at a TAB.
"""

from __future__ import annotations

import argparse
import shlex
import types
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin

from triptych import domains, pretrained, shipped_configs
from triptych.cli.plain import PlainParser
from triptych.errors import UserError

SHELLS = ("bash", "zsh", "fish")
FILES = ("data", "out", "json", "given", "complete", "mask", "upscale", "melody", "primer")
"""Options that name a file or a folder, besides those that end in one of PATH_ENDINGS."""
PATH_ENDINGS = ("directory", "file", "files", "packed", "init_from", "word_vectors")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    made = PlainParser(
        prog="triptych completion",
        usage="triptych completion bash|zsh|fish",
        description="Print a script that completes commands, domains, names of configs and "
        "options at a TAB. It is made in some seconds from this version's options; make it again "
        "after an update.",
        epilog="bash: triptych completion bash > ~/.local/share/bash-completion/completions/"
        "triptych; zsh: triptych completion zsh > a folder of $fpath/_triptych; fish: triptych "
        "completion fish > ~/.config/fish/completions/triptych.fish",
    )
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish.")
    return made


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
    from triptych.cli.main import ALONE, COMMANDS, offering

    root = argparse.ArgumentParser(prog="triptych")
    root.add_argument("--version", action="version", version="")
    commands = root.add_subparsers()
    for command in COMMANDS:
        made = commands.add_parser(command, help=command)
        if command in ALONE:
            _add_alone(made, command)
            continue
        inner = made.add_subparsers()
        allowed = offering(command)
        if command == "translate" and len(allowed) == 1:  # the domain may be left out
            _copy_options(_parser_of(command, allowed[0]), made, domain=allowed[0])
        for name in allowed:
            of_domain = inner.add_parser(name, help=f"{command} {name}")
            _copy_options(_parser_of(command, name), of_domain, domain=name)
    return root


def _parser_of(command: str, domain: str) -> argparse.ArgumentParser:
    """Return the parser of a command of a domain."""
    from triptych.cli.main import WITH_SETTINGS
    from triptych.cli.options import options_parser

    found = domains.find_domain(domain)
    if command in WITH_SETTINGS:
        made: argparse.ArgumentParser = import_module(f"triptych.cli.{command}").parser(found)
        return made

    return options_parser(command.replace("-", "_"), found)


def _add_alone(made: argparse.ArgumentParser, command: str) -> None:
    """Add the names and options of a command without a domain."""
    if command == "data":
        from triptych.cli.data import ACTIONS, fetch_parser
        from triptych.datasets import catalogue

        actions = made.add_subparsers()
        for action in ACTIONS:
            inner = actions.add_parser(action, help=action)
            if action == "fetch":
                inner.add_argument("name", choices=list(catalogue.read()))
                _copy_options(fetch_parser(), inner)
        return
    names: Iterable[str] = ()
    if command == "pretrained":
        names = pretrained.names()
    elif command == "configs":
        known = domains.names()
        names = [*known, *(f"{d}/{n}" for d in known for n in shipped_configs.find_all(d))]
    elif command == "completion":
        names = SHELLS
    elif command == "explain":
        from triptych.cli.explain import options_parser
        from triptych.explain.registry import ALL, summaries

        names = [*summaries(), ALL, "--list"]
        _copy_options(options_parser(), made)
    if names:
        made.add_argument("name", choices=list(names))
    else:
        module = import_module(f"triptych.cli.{command}")
        if hasattr(module, "parser"):
            _add_files(made.add_argument("files", nargs="*"))
            _copy_options(module.parser(), made)


def _copy_options(
    source: argparse.ArgumentParser, target: argparse.ArgumentParser, *, domain: str = ""
) -> None:
    """Add the options of one parser to another, with the values that they take."""
    for action in source._actions:
        if not action.option_strings or action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        text = " ".join((action.help or action.dest).split()).partition(". ")[0]
        flag: dict[str, Any] = {"action": "store_true"} if action.nargs == 0 else {}
        copied = target.add_argument(
            *action.option_strings, help=text.replace("%%", "%").replace("%", "%%"), **flag
        )
        name = action.dest.rpartition(".")[2]
        if flag:
            continue
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
    from triptych.config.hints import class_in, is_part, subclass_paths

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
