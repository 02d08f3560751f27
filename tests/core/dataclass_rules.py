"""What all dataclasses of a package have in common, and all defaults of one name."""

from __future__ import annotations

import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any


def parts(package: str) -> Iterator[tuple[str, Any]]:
    """Public classes and functions of `package` and below with their names."""
    path = import_module(package).__path__
    modules = [import_module(m.name) for m in pkgutil.walk_packages(path, f"{package}.")]
    for module in [import_module(package), *modules]:
        for name, part in inspect.getmembers(module):
            if getattr(part, "__module__", None) == module.__name__ and not name.startswith("_"):
                yield name, part


def changeable_dataclasses(package: str) -> set[str]:
    """Names of the public dataclasses of `package` and below whose fields can be set later.

    Settings and values are shared and serve as keys: they must not change under their holders.
    """
    return {
        name
        for name, part in parts(package)
        if inspect.isclass(part) and is_dataclass(part) and not part.__dataclass_params__.frozen  # type: ignore[attr-defined]
    }


def positional_options(package: str) -> set[str]:
    """Names of the options of commands and requests whose fields have an order."""
    return {
        name
        for name, part in parts(package)
        if name.endswith(("Options", "Request"))
        and is_dataclass(part)
        and not all(field.kw_only for field in fields(part))
    }


def names_of_many_defaults(package: str) -> set[str]:
    """Names of fields and parameters that have one default here and another there; None aside.

    An option of a command is a parameter of the method behind it: both do the same unasked.
    """
    defaults: dict[str, set[str]] = defaultdict(set)

    def add(function: Any) -> None:
        for parameter in inspect.signature(function).parameters.values():
            defaults[parameter.name].add(repr(parameter.default))

    for _, part in parts(package):
        if inspect.isfunction(part) or is_dataclass(part):
            add(part)
        for member in vars(part).values() if inspect.isclass(part) else ():
            if inspect.isfunction(member) and not member.__name__.startswith("__"):
                add(member)
    nothing = {repr(inspect.Parameter.empty), "None"}
    return {name for name, found in defaults.items() if len(found - nothing) > 1}
