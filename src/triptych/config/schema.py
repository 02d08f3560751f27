"""Settings: frozen dataclasses, to plain JSON types and back.

A settings class is a frozen dataclass. Below each field stands one sentence with the unit, which is
also its `--help` text. A part (see `hints`) in plain form is the dotted path of its class and its
arguments, so that a new kind needs no entry in any table:

    {"attention": {"class_path": "triptych.core.attention.relative.Relative", "init_args": {...}}}

Every error of a user is one UserError that names the file, the line and the key.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections.abc import Hashable
from typing import Any, TypeVar, cast, get_type_hints

import jsonargparse

from triptych.config.hints import (
    allows_null,
    class_in,
    dataclass_in,
    import_class,
    in_words,
    is_part,
    subclass_paths,
)
from triptych.config.messages import Locate
from triptych.config.parser import COMMAND_LINE, SettingsParser
from triptych.errors import UserError

Config = TypeVar("Config")


def to_plain(config: Any) -> Any:
    """Return a settings dataclass as JSON types only, for a checkpoint or config.yaml.

    Raises TypeError for a value without a plain form (a fault of the program, not of its user).
    """
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        plain = {
            field.name: to_plain(getattr(config, field.name))
            for field in dataclasses.fields(config)
            if field.init
        }
        kind = type(config)
        if is_part(kind):
            return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": plain}
        return plain
    if isinstance(config, dict):
        return {str(key): to_plain(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [to_plain(value) for value in config]
    if config is None or isinstance(config, bool):
        return config
    # A numpy scalar is a subclass of float; in a checkpoint it would fail `weights_only`.
    for plain_type in (int, float, str):
        if isinstance(config, plain_type):
            return plain_type(config)
    if isinstance(config, os.PathLike):
        return os.fspath(config)
    raise TypeError(f"settings hold a {type(config).__name__}, which has no plain form: {config!r}")


def from_plain(cls: type[Config], plain: Any, *, where: str = "the settings") -> Config:
    """Return the settings dataclass `cls` from the result of `to_plain` or a similar mapping.

    Missing keys take their defaults. Classes of parts are imported only from Triptych, from the
    package of `cls` and from modules that are imported already, because the mapping may come from a
    foreign checkpoint. where: beginning of error sentences.
    Raises UserError for a misspelt key, a wrong class, a wrong type or an impossible value.
    """
    packages = {"triptych", cls.__module__.partition(".")[0]}
    _check_packages(cls, plain, "", packages, where)
    parser: SettingsParser = _plain_parser(cls)  # type: ignore[arg-type]  # a class has a hash
    with parser.reading(lambda key: where):
        parser.check_keys(plain)
        return build(cls, parser.parse_object(plain), locate=lambda key: where)


def build(cls: type[Config], values: jsonargparse.Namespace, *, locate: Locate) -> Config:
    """Return the dataclass `cls` from parsed values, inner parts first.

    Raises UserError where `__post_init__` raises ValueError and where a value must not be null;
    `locate` gives the location of a key.
    """
    return cast(Config, _build(cls, values, "", locate))


@functools.cache
def _plain_parser(cls: Hashable) -> SettingsParser:
    parser = SettingsParser()
    parser.add_class_arguments(cls, None, as_group=True)
    return parser


def _build(kind: Any, values: Any, key: str, locate: Locate) -> Any:
    if isinstance(values, jsonargparse.Namespace) and "class_path" in values:
        cls = import_class(values.class_path)
        inner = values.get("init_args") or jsonargparse.Namespace()  # type: ignore[no-untyped-call]
        return _build(cls, inner, key, locate)
    cls = dataclass_in(kind)
    if cls is None or not isinstance(values, jsonargparse.Namespace):
        return values
    hints = get_type_hints(cls)
    arguments = {}
    for name in (field.name for field in dataclasses.fields(cls) if field.name in values):
        value = values[name]
        inner = f"{key}.{name}" if key else name
        if value is None and not allows_null(hints[name]):
            wanted = in_words(hints[name])
            raise UserError(f"{locate(inner)}: {inner} must be {wanted}, got null")
        arguments[name] = _build(hints[name], value, inner, locate)
    try:
        return cls(**arguments)
    except ValueError as error:  # from __post_init__: a sentence that names the field
        named = [name for name in arguments if re.search(rf"\b{name}\b", str(error))]
        keys = [".".join(filter(None, [key, name])) for name in named] or [key]
        # Of several settings that contradict each other, report the one on the command line.
        where = COMMAND_LINE if COMMAND_LINE in map(locate, keys) else locate(keys[0])
        raise UserError(f"{where}: {key + ': ' if key else ''}{error}") from error


def _check_packages(hint: Any, plain: Any, key: str, packages: set[str], where: str) -> None:
    """Raise UserError for a part whose class would be imported from another package."""
    if isinstance(plain, list):
        for item in plain:
            _check_packages(hint, item, key, packages, where)
    cls = class_in(hint)
    if cls is None:
        return
    fields = plain
    if is_part(cls):
        if isinstance(plain, dict) and "class_path" not in plain:
            raise UserError(f"{where}: {key}.class_path is missing")
        path = plain["class_path"] if isinstance(plain, dict) else plain
        if not isinstance(path, str):
            return
        if "." not in path:  # the short name of a class that is imported already
            path = next((p for p in subclass_paths(cls) if p.endswith(f".{path}")), "")
        module = path.rpartition(".")[0]
        if module.partition(".")[0] not in {"", *packages} and module not in sys.modules:
            raise UserError(
                f"{where}: {key} is {path}, and no module outside Triptych is imported by itself; "
                f"if you trust it, import {module} first (on the command line: --plugin {module})"
            )
        try:
            cls = import_class(path)
        except (ImportError, AttributeError, ValueError):
            return  # the parser reports it with the nearest class
        fields = plain.get("init_args") if isinstance(plain, dict) else None
    if isinstance(fields, dict) and dataclasses.is_dataclass(cls):
        hints = get_type_hints(cls)
        for name, value in fields.items():
            inner = f"{key}.{name}" if key else str(name)
            _check_packages(hints.get(name), value, inner, packages, where)
