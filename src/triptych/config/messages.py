"""Types of settings in words, and errors of settings as one sentence.

A part is a setting of which there are several kinds (an attention variant, a head, a source of
data). It is declared by a class that descends from ABC, and each kind is a dataclass below it.
"""

import argparse
import dataclasses
import importlib
import inspect
import pkgutil
import re
import types
from abc import ABC
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import accumulate, chain
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from triptych.errors import SYNONYMS, UserError, nearest

_ONE = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text",
    type(None): "null", dict: "a mapping",
}  # fmt: skip
ON_PATH = "for a file of your own, name its folder: PYTHONPATH=FOLDER triptych ..."
"""End of a sentence on a module that is not found."""
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
        return f"a list of {count}{_MANY.get(class_in(arguments[0]) or str, 'values')} in brackets"
    if origin is Annotated:  # a number with limits
        return in_words(arguments[0])
    if is_part(hint):
        return "one of the classes " + ", ".join(subclass_paths(hint))
    return _ONE.get(origin or hint, str(hint))


def module_exists(path: str) -> bool:
    """Return whether a dotted path names a module that can be imported; imports its parents."""
    if not all(part.isidentifier() for part in path.split(".")):
        return False
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError:
        return False


def typed_actions(parser: argparse.ArgumentParser) -> list[tuple[argparse.Action, Any]]:
    """Return the arguments of a parser with their types; None for one that argparse alone knows."""
    return [(action, getattr(action, "_typehint", None)) for action in parser._actions]


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
    """Return the dotted paths of the concrete kinds of a part in its package, all imported."""
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


Locate = Callable[[str], str]
"""Returns where a dotted key was set, as the beginning of a sentence: `configs/x.yaml, line 12`."""


def check_keys(parser: argparse.ArgumentParser, plain: Any, locate: Locate) -> None:
    """Raise UserError for an unknown key, and for a value in place of a group of settings."""
    typed = {
        action.dest: hint
        for action, hint in typed_actions(parser)
        # Others are for the command line alone, such as --help.
        if action.nargs != 0 and action.default is not argparse.SUPPRESS
    }
    typed.pop("config", None)
    groups = (accumulate(key.split("."), "{}.{}".format) for key in typed)
    known = dict.fromkeys(chain.from_iterable(groups)) | typed
    _check_group(plain, "", known, locate)


def _check_group(plain: Any, group: str, known: dict[str, Any], locate: Locate) -> None:
    if not isinstance(plain, dict):
        inside = ", ".join(key.rpartition(".")[2] for key in _inside(group, known))
        what = f"{group or 'the whole'} is a group of settings ({inside})"
        raise UserError(f"{locate(group)}: {what}, got {_shown(plain)}")
    for name, value in plain.items():
        key = f"{group}.{name}".lstrip(".")
        if key not in known:
            raise UserError(f"{locate(key)}: {_unknown(key, known)}")
        if _inside(key, known):
            _check_group(value, key, known, locate)
        elif isinstance(value, dict) and is_part(known[key]):
            # jsonargparse would take other keys for settings of the default class.
            form = dict.fromkeys((f"{key}.class_path", f"{key}.init_args"))
            _check_group(value, key, form, locate)


@contextmanager
def sentences(parser: argparse.ArgumentParser, locate: Locate) -> Iterator[None]:
    """Turn errors of jsonargparse into a UserError of one sentence that begins with a location."""
    try:
        yield
    except argparse.ArgumentError as error:
        options = ((a.dest, hint) for a, hint in typed_actions(parser) if a.option_strings)
        known = {key: hint for key, hint in options if not key.startswith(("help", "print_"))}
        key, problem = _explain(str(error), known)
        raise UserError(f"{locate(key)}: {problem}") from error


def _explain(message: str, known: dict[str, Any]) -> tuple[str, str]:
    """Return the dotted key that a message of jsonargparse is about, or "", and the problem."""
    # For a setting of a part: Parser key "K": Problem with given class_path 'C': Parser key ...
    keys = re.findall(r'Parser key "([^"]+)"', message)
    classes = re.findall(r"class_path '([^']+)'", message)
    problem = " ".join(re.split(r'Parser key "[^"]+":|class_path \'[^\']+\':', message)[-1].split())
    key = ".".join(dict.fromkeys(keys))
    if match := re.match(r"unrecognized arguments: (-*)([^ =]+)", problem):
        dashes = match[1] and "--"
        return "", _unknown(dashes + match[2], [dashes + key for key in known])
    if match := re.match(r"Option '([^']+)' is not accepted", problem):
        fields = [f"{key}.{field.name}" for field in dataclasses.fields(resolve_name(classes[-1]))]
        key = f"{key}.{match[1]}"
        return key, f"{classes[-1]}: {_unknown(key, fields)}"
    if not keys:
        return "", problem
    hint = known.get(keys[0])
    for cls, name in zip(classes, keys[1:], strict=False):
        hint = get_type_hints(resolve_name(cls)).get(name)
    # Of a union every member has its own value; the last one is that of the whole.
    if match := re.search(r".*(?:Got|Given) value: (.*?)(?: Subclass types|$)", problem):
        shown = _shown(match[1])
        quotes = " (YAML reads unquoted on, off, yes and no as such; quote them)"
        wanted = f"{key} must be {in_words(hint)}, got {shown}"
        return key, wanted + (quotes if shown in ("true", "false") else "")
    named = re.search(r"import path string: (\S+)|Import path (\S+) does", problem)
    path = (named[1] or named[2]) if named else classes[-1] if classes else ""
    base = class_in(hint)
    module = path.rpartition(".")[0]
    if module and not path.startswith("triptych.") and not module_exists(module):
        return key, f"{key}: {path} is in no module that Python can import; {ON_PATH}"
    if path and base is not None and path not in (kinds := subclass_paths(base)):
        return key, f"{key}: {path} is not a kind of {base.__name__}{_instead(path, kinds)}"
    return key, f"{': '.join([key, *classes[-1:]])}: {problem}"


def _unknown(key: str, known: Iterable[str]) -> str:
    """Return a sentence on an unknown key; its name may be known in another group."""
    group, _, name = key.rpartition(".")
    bare = name.lstrip("-")
    words = (bare, SYNONYMS.get(bare, bare))
    elsewhere = [other for other in known if other.rpartition(".")[2] in words]
    if elsewhere:
        return f"unknown key {key}; did you mean {elsewhere[0]}?"
    return f"unknown key {key}{_instead(key, _inside(group, known))}"


def _instead(key: str, others: Iterable[str]) -> str:
    """Return the end of a sentence: the key with the name nearest to that of a key, or all."""
    names = {other.rpartition(".")[2]: other for other in sorted(others)}
    if near := nearest(key.rpartition(".")[2], names):
        return f"; did you mean {names[near]}?"
    return f"; allowed here: {', '.join(names) or 'nothing'}"


def _inside(group: str, known: Iterable[str]) -> list[str]:
    """Return the keys directly below a group; of the whole for an empty one."""
    return [key for key in known if key.rpartition(".")[0] == group]


def _shown(value: Any) -> str:
    """Return a value as YAML writes it."""
    text = str(value).strip()
    return {"None": "null", "True": "true", "False": "false"}.get(text, text)
