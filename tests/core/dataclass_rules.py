"""What all dataclasses of a package have in common."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import is_dataclass
from importlib import import_module


def changeable_dataclasses(package: str) -> set[str]:
    """Names of the public dataclasses of `package` and below whose fields can be set later.

    Settings and values are shared and serve as keys: they must not change under their holders.
    """
    path = import_module(package).__path__
    modules = [import_module(m.name) for m in pkgutil.walk_packages(path, f"{package}.")]
    return {
        name
        for module in [import_module(package), *modules]
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__
        and not name.startswith("_")
        and is_dataclass(kind)
        and not kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    }
