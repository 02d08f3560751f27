"""Settings: frozen dataclasses, to plain JSON types and back.

Below each field stands one sentence with the unit, which is also its `--help` text. A part (see
`messages`) in plain form is the dotted path of its class and its arguments:

    {"attention": {"class_path": "triptych.core.attention.relative.Relative", "init_args": {...}}}

On the command line every field is a dotted option. Every error of a user is one UserError that
names the file, the line and the key.
"""

import argparse
import dataclasses
import functools
import json
import operator
import os
import re
import sys
from abc import ABC
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar, get_args, get_type_hints

import jsonargparse

from triptych.config import messages
from triptych.config.files import SettingsFile, at_home, read_settings_file
from triptych.errors import UserError

Config = TypeVar("Config")


# A dataclass that descends from ABC is a part: jsonargparse takes any subclass by its dotted path.
# Every other dataclass is expanded into its fields.
jsonargparse.set_parsing_settings(
    subclasses_enabled=[ABC], docstring_parse_attribute_docstrings=True
)


class HelpFormatter(jsonargparse.DefaultHelpFormatter):
    """Help with the limits of numbers as signs: `int >= 1`."""

    def _get_type_str(self, action: argparse.Action) -> str | None:
        text = super()._get_type_str(action)
        return text and re.sub(r"Annotated\[(\w+), (.*?)\]", r"\1 \2", text)


CONFIG_OPTION = "--config"
COMMAND_LINE = "the command line"


def to_plain(config: Any) -> Any:
    """Return a settings dataclass as JSON types; TypeError for a value without such a form."""
    return json.loads(json.dumps(config, default=_plain_form))


def _plain_form(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"a {type(value).__name__} has no plain form: {value!r}")
    kind = type(value)
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    if messages.is_part(kind):
        return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": fields}
    return fields


def from_plain(cls: type[Config], plain: Any, *, where: str = "the settings") -> Config:
    """Return the settings dataclass `cls` from the result of `to_plain` or a similar mapping.

    Missing keys take their defaults. Classes of parts are imported only from Triptych, from the
    package of `cls` and from modules imported already: the mapping may be of a foreign checkpoint.
    where: beginning of the sentence of a UserError.
    """
    _check_packages(cls, plain, {"triptych", cls.__module__.partition(".")[0]}, where)
    parser = _plain_parser(cls)  # type: ignore[arg-type]  # a class has a hash
    messages.check_keys(parser, plain, lambda key: where)
    with messages.sentences(parser, lambda key: where):
        values = parser.parse_object(plain)
    return build(cls, values, locate=lambda key: where)


@functools.cache
def _plain_parser(cls: Hashable) -> jsonargparse.ArgumentParser:
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(cls, None, as_group=True)
    return parser


def build(
    cls: type[Config], values: jsonargparse.Namespace, *, locate: messages.Locate, key: str = ""
) -> Config:
    """Return the dataclass `cls`, at a dotted key, from parsed values, inner parts first.

    Raises UserError where `__post_init__` raises ValueError and where a value must not be null.
    """
    hints = get_type_hints(cls)
    arguments = {}
    for name in filter(values.__contains__, hints):
        value, inner = values[name], f"{key}.{name}".lstrip(".")
        if value is None and not messages.allows_null(hints[name]):
            wanted = messages.in_words(hints[name])
            raise UserError(f"{locate(inner)}: {inner} must be {wanted}, got null")
        if isinstance(value, jsonargparse.Namespace):
            kind: Any = messages.class_in(hints[name])
            if "class_path" in value:
                kind, value = resolve_name(value.class_path), value.get("init_args") or {}
            value = build(kind, value, locate=locate, key=inner)
        arguments[name] = value
    try:
        return cls(**arguments)
    except ValueError as error:  # from __post_init__: a sentence that names the field
        named = [name for name in arguments if re.search(rf"\b{name}\b", str(error))]
        keys = [".".join(filter(None, [key, name])) for name in named] or [key]
        # Of several settings that contradict each other, report the one on the command line.
        where = COMMAND_LINE if COMMAND_LINE in map(locate, keys) else locate(keys[0])
        begins = re.match(r"\w*", str(error))
        about = f"{key}{'.' if begins and begins[0] in arguments else ': '}" if key else ""
        raise UserError(f"{where}: {about}{error}") from error


def _check_packages(hint: Any, plain: Any, packages: set[str], where: str) -> None:
    """Raise UserError for a part whose class would be imported from another package."""
    cls = messages.class_in(hint)
    if cls is not None and messages.is_part(cls):
        named = isinstance(plain, dict)
        path, plain = (plain.get("class_path"), plain.get("init_args")) if named else (plain, None)
        if isinstance(path, str) and "." not in path:  # the short name of a class
            path = next((p for p in messages.subclass_paths(cls) if p.endswith(f".{path}")), None)
        if not isinstance(path, str):
            return  # the parser reports it
        module = path.rpartition(".")[0]
        if module.partition(".")[0] not in packages and module not in sys.modules:
            raise UserError(
                f"{where}: {path} is a class outside Triptych, which is not imported by itself; "
                f"if you trust it, import {module} first (on the command line: --plugin {module})"
            )
        try:
            cls = resolve_name(path)
        except (ImportError, AttributeError, ValueError):
            return  # the parser reports it with the nearest class
    if isinstance(plain, dict) and dataclasses.is_dataclass(cls):
        hints = get_type_hints(cls)
        for name, value in plain.items():
            _check_packages(hints.get(name), value, packages, where)


def parser_for(
    *classes: type,
    prog: str,
    description: str | None,
    config: bool = True,
    skip: Iterable[str] = (),
) -> jsonargparse.ArgumentParser:
    """Return a parser with every field of the classes, but those to skip, as an option.

    config: whether it has `--config FILE`, and a heading for each class.
    """
    parser = jsonargparse.ArgumentParser(
        prog=prog,
        description=description,
        allow_abbrev=False,
        exit_on_error=False,
        formatter_class=HelpFormatter,
    )
    if config:
        parser.add_argument(
            CONFIG_OPTION,
            action="config",
            help="Settings file (YAML). Options override it, wherever they stand.",
        )
    for cls in classes:
        messages.import_kinds(cls)  # the help lists them, and their short names are known
        parser.add_class_arguments(cls, None, as_group=config, skip={*skip})
    hide_group_options(parser)
    return parser


def hide_group_options(parser: jsonargparse.ArgumentParser) -> None:
    """Remove `--model FILE` and its like from the help: one settings file holds all groups."""
    actions = [action for action, _ in messages.typed_actions(parser)]
    keys = [action.dest for action in actions if not action.dest.endswith(".help")]
    for action in actions:
        if any(key.startswith(action.dest + ".") for key in keys):
            action.help = argparse.SUPPRESS


def prefer_int(parser: jsonargparse.ArgumentParser) -> None:
    """Parse `1` as an int for options of int or float, whatever order their type has.

    `typing` caches equal types, so that `int | float` may come out as another `float | int`.
    """
    for action, hint in messages.typed_actions(parser):
        hints = get_args(hint)
        if int in hints and float in hints:
            ordered = [int, float, *(hint for hint in hints if hint not in (int, float))]
            action._typehint = functools.reduce(operator.or_, ordered)  # type: ignore[attr-defined]


def parse_settings(
    parser: jsonargparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[jsonargparse.Namespace, messages.Locate]:
    """Parse a command line, first each file alone; return values and what locates a key."""
    paths: list[Path] = []
    others = list(arguments)
    # A recipe may have an option of this name, which is no settings file of the command's own.
    action = parser._option_string_actions.get(CONFIG_OPTION)
    if isinstance(action, parser._registry_get("action", "config")):
        paths, others = split_config(arguments)
    files = [read_settings_file(path) for path in paths]
    for file in files:
        messages.check_keys(parser, file.content, file.locate)
        with messages.sentences(parser, file.locate):
            parser.parse_string(file.text)
    # Options apply in order: with the files first, an option always overrides a file.
    first = [part for path in paths for part in (CONFIG_OPTION, str(path))]
    with messages.sentences(parser, lambda key: COMMAND_LINE):
        values = at_home(parser.parse_args([*first, *others]))
    return values, _locate_in(files, others)


def split_config(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the settings files of a command line, in their order, and all other arguments."""
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    reader.add_argument(CONFIG_OPTION, action="append", default=[])
    try:
        found, others = reader.parse_known_args(arguments)
    except argparse.ArgumentError:
        raise UserError(f"{CONFIG_OPTION} needs the name of a settings file after it") from None
    return [Path(at_home(path)) for path in found.config], others


def _locate_in(files: list[SettingsFile], options: list[str]) -> messages.Locate:
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
