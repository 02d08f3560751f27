"""Settings: frozen dataclasses to plain JSON types and back, and to options of a command line.

A settings class is a frozen dataclass; below each field stands one sentence with the unit, which is
also its `--help` text. A part of which there are several kinds (an attention variant, a head, a
source of data) is declared by an abstract class: in plain form it is written as the dotted path of
the class and its arguments, so a new kind needs no entry in any table:

    {"attention": {"class_path": "triptych.core.attention.relative.Relative", "init_args": {...}}}

Whatever a user got wrong comes out as one UserError that names the file, the line and the key.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import re
from abc import ABC
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import jsonargparse

from triptych.config import messages as setting_errors
from triptych.config.files import SettingsFile, read_settings_file
from triptych.config.messages import Place
from triptych.errors import UserError

# Descending from ABC is what marks a part of which there are several kinds; jsonargparse then takes
# any subclass by its dotted path. Every other dataclass is spread out into its fields.
jsonargparse.set_parsing_settings(
    subclasses_enabled=[ABC], docstring_parse_attribute_docstrings=True
)

Config = TypeVar("Config")
CONFIG_OPTION = "--config"
COMMAND_LINE = "the command line"


def to_plain(config: Any) -> Any:
    """A settings dataclass as JSON types only: what goes into a checkpoint and into config.yaml.

    Raises TypeError for a value that has no plain form (a fault of the program, not of its user).
    """
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        plain = {
            field.name: to_plain(getattr(config, field.name))
            for field in dataclasses.fields(config)
            if field.init
        }
        if isinstance(config, ABC):
            kind = type(config)
            return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": plain}
        return plain
    if isinstance(config, dict):
        return {str(key): to_plain(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [to_plain(value) for value in config]
    if config is None or isinstance(config, bool):
        return config
    # A numpy scalar is a subclass of float, and would keep a checkpoint from opening weights-only.
    for plain_type in (int, float, str):
        if isinstance(config, plain_type):
            return plain_type(config)
    if isinstance(config, os.PathLike):
        return os.fspath(config)
    raise TypeError(f"settings hold a {type(config).__name__}, which has no plain form: {config!r}")


def from_plain(cls: type[Config], plain: Any, *, where: str = "the settings") -> Config:
    """The settings dataclass `cls` from what `to_plain` made (or from a hand-written mapping).

    Keys that are missing take their defaults. `where` opens the sentence of an error.
    Raises UserError for a misspelt key, a wrong class, a wrong type or an impossible value.
    """
    parser = _plain_parser(cls)
    with parser.reading(lambda key: where):
        parser.check_keys(plain)
        return build(cls, parser.parse_object(plain), place=lambda key: where)


def build(cls: type[Config], values: jsonargparse.Namespace, *, place: Place) -> Config:
    """The dataclass `cls` from parsed values, inner parts first; `place` opens error sentences.

    Raises UserError where `__post_init__` finds a value impossible or a value must not be null.
    """
    return _build(cls, values, "", place)


def parser_for(cls: type, *, prog: str, description: str, config: bool = True) -> SettingsParser:
    """A parser that has every field of `cls` as a dotted option, and `--config FILE` if asked."""
    parser = SettingsParser(prog=prog, description=description)
    if config:
        parser.add_argument(
            CONFIG_OPTION,
            action="config",
            help="Settings file (YAML). Options beside it win over it, wherever they stand.",
        )
    setting_errors.import_kinds(cls)  # so that the help lists them, and short names are known
    parser.add_class_arguments(cls, None, as_group=True)
    parser.hide_group_options()
    return parser


class SettingsParser(jsonargparse.ArgumentParser):
    """A flat parser whose errors are UserErrors of one sentence, with the nearest allowed word."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what jsonargparse's parser takes; abbreviated options are off, as they mislead."""
        super().__init__(*args, allow_abbrev=False, **kwargs)
        self._place: Place = lambda key: COMMAND_LINE

    def error(self, message: str, ex: Exception | None = None) -> Any:
        """Raise the UserError that tells this fault (argparse's own hook for every fault)."""
        if not self.exit_on_error:  # the parser of a class inside; the outer one knows its key
            super().error(message, ex)
        raise UserError(setting_errors.sentence(self, message, self._place)) from ex

    def hide_group_options(self) -> None:
        """Leave `--model FILE` and its like out of the help: one settings file holds all groups."""
        keys = [action.dest for action in self._actions if not action.dest.endswith(".help")]
        for action in self._actions:
            if any(key.startswith(action.dest + ".") for key in keys):
                action.help = argparse.SUPPRESS

    @contextmanager
    def reading(self, place: Place) -> Iterator[None]:
        """Errors inside this block open with what `place` says of their key."""
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    def check_keys(self, plain: Any) -> None:
        """Raise UserError for a key that no option has, or for a value in place of a group."""
        setting_errors.check_keys(self, plain, self._place)

    def parse_settings(self, arguments: Sequence[str]) -> tuple[jsonargparse.Namespace, Place]:
        """Parse a command line into values, and a function that tells where a key was set.

        Every file is first read alone, so that its errors name it and the line.
        Raises UserError for everything a user can get wrong.
        """
        paths, others = [], list(arguments)
        if CONFIG_OPTION in self._option_string_actions:
            paths, others = split_config(arguments)
        files = [read_settings_file(path) for path in paths]
        for file in files:
            with self.reading(file.place):
                self.check_keys(file.content)
                self.parse_string(file.text)
        # Options apply in order; in front, a file never wins over an option beside it.
        front = [part for path in paths for part in (CONFIG_OPTION, str(path))]
        return self.parse_args([*front, *others]), _place_of(files, others)


def _place_of(files: list[SettingsFile], options: list[str]) -> Place:
    # `--data.source.init_args.directory` and `--data.source.directory` set the same key.
    given = {
        option.lstrip("-").partition("=")[0].replace(".init_args", "")
        for option in options
        if option.startswith("--")
    }

    def place(key: str) -> str:
        if any(option == key or option.startswith(key + ".") for option in given):
            return COMMAND_LINE
        holding = [file for file in files if key in file.lines] or files
        return holding[-1].place(key) if holding else "the settings"

    return place


def split_config(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The settings files that a command line names, in their order, and all other arguments."""
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


@functools.cache
def _plain_parser(cls: type) -> SettingsParser:
    parser = SettingsParser()
    parser.add_class_arguments(cls, None, as_group=True)
    return parser


def _build(kind: Any, values: Any, key: str, place: Place) -> Any:
    if isinstance(values, jsonargparse.Namespace) and "class_path" in values:
        cls = setting_errors.import_class(values.class_path)
        return _build(cls, values.get("init_args") or jsonargparse.Namespace(), key, place)
    cls = setting_errors.dataclass_in(kind)
    if cls is None or not isinstance(values, jsonargparse.Namespace):
        return values
    hints = get_type_hints(cls)
    arguments = {}
    for name in (field.name for field in dataclasses.fields(cls) if field.name in values):
        value = values[name]
        inner = f"{key}.{name}" if key else name
        if value is None and not setting_errors.allows_null(hints[name]):
            wanted = setting_errors.in_words(hints[name])
            raise UserError(f"{place(inner)}: {inner} must be {wanted}, got null")
        arguments[name] = _build(hints[name], value, inner, place)
    try:
        return cls(**arguments)
    except ValueError as error:  # from __post_init__: a sentence that names the field
        named = [name for name in arguments if re.search(rf"\b{name}\b", str(error))]
        keys = [".".join(filter(None, [key, name])) for name in named] or [key]
        # Of several settings that do not go together, the one just typed is the one to look at.
        where = COMMAND_LINE if COMMAND_LINE in map(place, keys) else place(keys[0])
        raise UserError(f"{where}: {key + ': ' if key else ''}{error}") from error
