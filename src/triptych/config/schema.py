"""Settings: frozen dataclasses, to plain JSON types and back.

A settings class is a frozen dataclass. Below each field stands one sentence with the unit, which is
also its `--help` text. A part (see `messages`) in plain form is the dotted path of its class and
its arguments, so that a new kind needs no entry in any table:

    {"attention": {"class_path": "triptych.core.attention.relative.Relative", "init_args": {...}}}

Every error of a user is one UserError that names the file, the line and the key.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import sys
from collections.abc import Hashable
from pkgutil import resolve_name
from typing import Any, TypeVar, get_type_hints

import jsonargparse

from triptych.config.messages import (
    Locate,
    allows_null,
    check_keys,
    class_in,
    in_words,
    is_part,
    sentences,
    subclass_paths,
)
from triptych.config.parser import COMMAND_LINE
from triptych.errors import UserError

Config = TypeVar("Config")


def to_plain(config: Any) -> Any:
    """Return a settings dataclass as JSON types only, for a checkpoint or config.yaml.

    Raises TypeError for a value without a plain form (a fault of the program, not of its user).
    """
    return json.loads(json.dumps(config, default=_plain_form))


def _plain_form(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"a {type(value).__name__} has no plain form: {value!r}")
    kind = type(value)
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    if is_part(kind):
        return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": fields}
    return fields


def from_plain(cls: type[Config], plain: Any, *, where: str = "the settings") -> Config:
    """Return the settings dataclass `cls` from the result of `to_plain` or a similar mapping.

    Missing keys take their defaults. Classes of parts are imported only from Triptych, from the
    package of `cls` and from modules that are imported already, because the mapping may come from a
    foreign checkpoint. where: beginning of error sentences.
    Raises UserError for a misspelt key, a wrong class, a wrong type or an impossible value.
    """
    _check_packages(cls, plain, {"triptych", cls.__module__.partition(".")[0]}, where)
    parser = _plain_parser(cls)  # type: ignore[arg-type]  # a class has a hash
    check_keys(parser, plain, lambda key: where)
    with sentences(parser, lambda key: where):
        values = parser.parse_object(plain)
    return build(cls, values, locate=lambda key: where)


@functools.cache
def _plain_parser(cls: Hashable) -> jsonargparse.ArgumentParser:
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(cls, None, as_group=True)
    return parser


def build(
    cls: type[Config], values: jsonargparse.Namespace, *, locate: Locate, key: str = ""
) -> Config:
    """Return the dataclass `cls` from parsed values, inner parts first.

    key: of `cls` in the settings, dotted. locate: gives the location of a key. Raises UserError
    where `__post_init__` raises ValueError and where a value must not be null.
    """
    hints = get_type_hints(cls)
    arguments = {}
    for name in filter(values.__contains__, hints):
        value, inner = values[name], f"{key}.{name}".lstrip(".")
        if value is None and not allows_null(hints[name]):
            wanted = in_words(hints[name])
            raise UserError(f"{locate(inner)}: {inner} must be {wanted}, got null")
        if isinstance(value, jsonargparse.Namespace):
            kind: Any = class_in(hints[name])
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
        raise UserError(f"{where}: {key + ': ' if key else ''}{error}") from error


def _check_packages(hint: Any, plain: Any, packages: set[str], where: str) -> None:
    """Raise UserError for a part whose class would be imported from another package."""
    cls = class_in(hint)
    if cls is not None and is_part(cls):
        named = isinstance(plain, dict)
        path, plain = (plain.get("class_path"), plain.get("init_args")) if named else (plain, None)
        if isinstance(path, str) and "." not in path:  # the short name of a class
            path = next((p for p in subclass_paths(cls) if p.endswith(f".{path}")), None)
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
