"""Command-line parser of settings: every field of a dataclass is a dotted option."""

from __future__ import annotations

import argparse
import functools
import operator
from abc import ABC
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import jsonargparse
from jsonargparse.typing import register_type

from triptych.config.files import SettingsFile, read_settings_file
from triptych.config.messages import Locate, check_keys, import_kinds, sentences
from triptych.errors import UserError
from triptych.types import LIMITED

# A dataclass that descends from ABC is a part: jsonargparse takes any subclass by its dotted path.
# Every other dataclass is expanded into its fields.
jsonargparse.set_parsing_settings(
    subclasses_enabled=[ABC], docstring_parse_attribute_docstrings=True
)


def _register(limited: Any) -> None:
    """Teach jsonargparse a number with limits; the value is a plain int or float."""
    base = limited.base

    def read(value: Any) -> Any:
        try:
            number = base(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        numbers = int if base is int else int | float
        if isinstance(number, bool) or not isinstance(number, numbers) or not limited.fits(number):
            raise ValueError(f"Got value: {value}")  # see messages.sentences
        return base(number)

    def holds(value: Any, _: type) -> bool:
        return type(value) is base and limited.fits(value)

    register_type(limited, serializer=base, deserializer=read, type_check=holds)


for limited in LIMITED:
    _register(limited)

CONFIG_OPTION = "--config"
COMMAND_LINE = "the command line"


def parser_for(
    cls: type, *, prog: str, description: str, config: bool = True
) -> jsonargparse.ArgumentParser:
    """Return a parser with every field of `cls` as an option, and `--config FILE` if asked for."""
    parser = jsonargparse.ArgumentParser(
        prog=prog, description=description, allow_abbrev=False, exit_on_error=False
    )
    if config:
        parser.add_argument(
            CONFIG_OPTION,
            action="config",
            help="Settings file (YAML). Options override it, wherever they stand.",
        )
    import_kinds(cls)  # the help lists them, and their short names are known
    parser.add_class_arguments(cls, None, as_group=True)
    hide_group_options(parser)
    return parser


def hide_group_options(parser: jsonargparse.ArgumentParser) -> None:
    """Remove `--model FILE` and its like from the help: one settings file holds all groups."""
    keys = [action.dest for action in parser._actions if not action.dest.endswith(".help")]
    for action in parser._actions:
        if any(key.startswith(action.dest + ".") for key in keys):
            action.help = argparse.SUPPRESS


def prefer_int(parser: jsonargparse.ArgumentParser) -> None:
    """Parse `1` as an int for options of int or float, whatever order their type has.

    `typing` caches types that compare equal, so that `int | float` of one library may come out as
    the `float | int` of another, and jsonargparse tries types in order.
    """
    for action in parser._actions:
        hints = get_args(getattr(action, "_typehint", None))
        if int in hints and float in hints:
            ordered = [int, float, *(hint for hint in hints if hint not in (int, float))]
            action._typehint = functools.reduce(operator.or_, ordered)  # type: ignore[attr-defined]


def parse_settings(
    parser: jsonargparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[jsonargparse.Namespace, Locate]:
    """Parse a command line; return the values and a function that locates a key.

    Every file is first read alone, so that its errors name it and the line.
    Raises UserError for all bad input.
    """
    paths: list[Path] = []
    others = list(arguments)
    if CONFIG_OPTION in parser._option_string_actions:
        paths, others = split_config(arguments)
    files = [read_settings_file(path) for path in paths]
    for file in files:
        check_keys(parser, file.content, file.locate)
        with sentences(parser, file.locate):
            parser.parse_string(file.text)
    # Options apply in order: with the files first, an option always overrides a file.
    first = [part for path in paths for part in (CONFIG_OPTION, str(path))]
    with sentences(parser, lambda key: COMMAND_LINE):
        return parser.parse_args([*first, *others]), _locate_in(files, others)


def split_config(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the settings files of a command line, in their order, and all other arguments."""
    paths: list[Path] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == CONFIG_OPTION:
            path = next(rest, None)
            if path is None:
                raise UserError(f"{CONFIG_OPTION} needs the name of a settings file after it")
            paths.append(Path(path))
        elif argument.startswith(CONFIG_OPTION + "="):
            paths.append(Path(argument.partition("=")[2]))
        else:
            others.append(argument)
    return paths, others


def _locate_in(files: list[SettingsFile], options: list[str]) -> Locate:
    """Return a function that locates a key in the options or in the files."""
    # `--data.source.init_args.directory` and `--data.source.directory` set the same key.
    given = {
        option.lstrip("-").partition("=")[0].replace(".init_args", "")
        for option in options
        if option.startswith("--")
    }

    def locate(key: str) -> str:
        if any(option == key or option.startswith(key + ".") for option in given):
            return COMMAND_LINE
        holding = [file for file in files if key in file.lines] or files
        return holding[-1].locate(key) if holding else "the settings"

    return locate
