"""Type hints of settings: what they allow, in words, and the classes that a part can have.

A part is a setting of which there are several kinds (an attention variant, a head, a source of
data). It is declared by a class that descends from ABC, and each kind is a dataclass below it.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import types
from abc import ABC
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from triptych.types import LIMITED

_ONE = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text",
    type(None): "null", dict: "a mapping",
}  # fmt: skip
_MANY = {int: "whole numbers", float: "numbers", bool: "true or false", str: "texts"}


def in_words(hint: Any) -> str:
    """Return a type as text for a user: `a whole number or null`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(in_words, arguments))
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (list, tuple):
        count = f"{len(arguments)} " if origin is tuple and Ellipsis not in arguments else ""
        one, each = arguments[0], ""
        if one in LIMITED:
            one, each = one.base, f", each {one.limits},"
        return f"a list of {count}{_MANY.get(one, 'values')}{each} in brackets"
    if hint in LIMITED:
        return f"{_ONE[hint.base]} {'of ' * hint.limits.startswith('at')}{hint.limits}"
    if is_part(hint):
        return "one of the classes " + ", ".join(subclass_paths(hint))
    return _ONE.get(origin or hint, str(hint))


def allows_null(hint: Any) -> bool:
    """Return whether null is a value of the type."""
    return hint in (None, type(None), Any) or any(map(allows_null, get_args(hint)))


def class_in(hint: Any) -> type | None:
    """Return the first class in a type, such as the one that an optional type holds."""
    if inspect.isclass(hint):
        return hint if hint is not type(None) else None
    return next(filter(None, map(class_in, get_args(hint))), None)


def is_part(hint: Any) -> bool:
    """Return whether a setting is a part, whose kind is named by a class path."""
    cls = class_in(hint)
    return cls is not None and ABC in cls.__mro__  # issubclass would ask hooks of other libraries


def subclass_paths(base: type) -> list[str]:
    """Return the dotted paths of the concrete kinds of a part, from the package that declares it.

    Imports every module of that package.
    """
    package = importlib.import_module(base.__module__.rpartition(".")[0] or base.__module__)
    for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
        importlib.import_module(f"{package.__name__}.{module.name}")
    paths, waiting = set(), [base]
    while waiting:
        cls = waiting.pop()
        waiting.extend(cls.__subclasses__())
        if cls is not base and not inspect.isabstract(cls):
            paths.add(f"{cls.__module__}.{cls.__qualname__}")
    return sorted(paths)


def import_kinds(cls: type) -> None:
    """Import every kind of the parts in a settings class, so that jsonargparse lists them."""
    for hint in get_type_hints(cls).values():
        inner = class_in(hint)
        if inner is not None and is_part(inner):
            subclass_paths(inner)
        elif inner is not None and dataclasses.is_dataclass(inner):
            import_kinds(inner)
