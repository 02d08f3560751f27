"""Turns what jsonargparse finds wrong into one sentence: the place, the value, what is allowed."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib
import inspect
import pkgutil
import re
import types
from abc import ABC
from collections.abc import Callable, Iterable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from triptych.errors import UserError

Place = Callable[[str], str]
"""Where a dotted key was set, to open a sentence with: `configs/x.yaml, line 12`."""

_UNIONS = (Union, types.UnionType)
_ONE = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_MANY = {int: "whole numbers", float: "numbers", bool: "true or false", str: "texts"}


def check_keys(parser: argparse.ArgumentParser, plain: Any, place: Place) -> None:
    """Raise UserError for a key that no option has, a value for a group, a null out of place."""
    flags = {action.dest for action in parser._actions if action.nargs == 0}
    known = {key: hint for key, hint in _destinations(parser).items() if key not in flags}
    _check_keys(plain, "", known, place)


def sentence(parser: argparse.ArgumentParser, message: str, place: Place) -> str:
    """What `message` of jsonargparse says, in one sentence that opens with its place."""
    key, told = _explain(message, _destinations(parser))
    return f"{place(key)}: {told}"


def in_words(hint: Any) -> str:
    """A type as a user would say it: `a whole number or null`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        choices = [get_args(argument) for argument in arguments if get_origin(argument) is Literal]
        words = [
            in_words(argument) for argument in arguments if get_origin(argument) is not Literal
        ]
        if choices:  # several lists of allowed words are one list to a person
            words.insert(0, in_words(Literal[*(word for words in choices for word in words)]))
        return " or ".join(words)
    if origin is Literal:
        return "one of " + ", ".join(dict.fromkeys(map(str, arguments)))
    if origin in (list, tuple):
        items = [argument for argument in arguments if argument is not Ellipsis]
        count = f"{len(items)} " if origin is tuple and Ellipsis not in arguments else ""
        inner = _MANY.get(items[0], "values") if items else "values"
        return f"a list of {count}{inner} in brackets"
    if hint is type(None):
        return "null"
    if dict in (hint, origin):
        return "a mapping"
    if inspect.isclass(hint) and hint not in _ONE:
        return "one of the classes " + ", ".join(_subclass_paths(hint))
    return _ONE.get(hint, str(hint))


def allows_null(hint: Any) -> bool:
    """Whether null is a value of the type `hint`."""
    return hint in (None, type(None), Any) or any(map(allows_null, get_args(hint)))


def dataclass_in(hint: Any) -> type | None:
    """The dataclass that `hint` is, or that an optional `hint` holds; None for other types."""
    if inspect.isclass(hint):
        return hint if dataclasses.is_dataclass(hint) else None
    if get_origin(hint) in _UNIONS:
        return next(filter(None, map(dataclass_in, get_args(hint))), None)
    return None


def import_class(path: str) -> Any:
    """The class at a dotted path that jsonargparse has already found to be right."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def import_kinds(cls: type) -> None:
    """Import every kind of the parts below the settings class, from the package of each part."""
    for hint in get_type_hints(cls).values():
        part = _class_in(hint)
        if part is not None and dataclasses.is_dataclass(part):
            if issubclass(part, ABC):
                _subclass_paths(part)
            else:
                import_kinds(part)


def _check_keys(plain: Any, prefix: str, known: dict[str, Any], place: Place) -> None:
    if not isinstance(plain, dict):
        group = prefix.rstrip(".") or "the whole"
        inside = ", ".join(_children(prefix, known))
        raise UserError(
            f"{place(group)}: {group} is a group of settings ({inside}), got {_shown(plain)}"
        )
    for name, value in plain.items():
        key = f"{prefix}{name}"
        if _children(key + ".", known):
            _check_keys(value, key + ".", known, place)
        elif key not in known:
            raise UserError(f"{place(key)}: unknown key {key}{_allowed_instead(key, known)}")
        elif value is None and known[key] is not None and not allows_null(known[key]):
            raise UserError(f"{place(key)}: {key} must be {in_words(known[key])}, got null")
        elif isinstance(value, dict) and _is_part(known[key]):
            _check_part(value, key, known[key], place)


def _is_part(hint: Any) -> bool:
    """Whether a setting is a part of which there are several kinds, named by a class path."""
    part = _class_in(hint)
    return part is not None and issubclass(part, ABC)


def _check_part(value: dict[str, Any], key: str, hint: Any, place: Place) -> None:
    """Raise UserError for a class path or arguments of another form (jsonargparse's is obscure)."""
    form = ("class_path", "init_args")
    for name in value:
        if name in form or ("class_path" not in value and not _names_near(form, name)):
            continue
        near = _names_near(form, name)
        told = f"; did you mean {near[0]}?" if near else "; allowed here: class_path, init_args"
        raise UserError(f"{place(f'{key}.{name}')}: unknown key {key}.{name}{told}")
    arguments = value.get("init_args")
    if arguments is not None and not isinstance(arguments, dict):
        raise UserError(
            f"{place(f'{key}.init_args')}: {key}.init_args must be settings by name "
            f"(`name: value`), got {_shown(arguments)}"
        )


def _names_near(allowed: Iterable[str], name: object) -> list[str]:
    return difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.75)


def _shown(value: Any) -> str:
    """A value as YAML writes it."""
    text = str(value).strip()
    return {"None": "null", "True": "true", "False": "false"}.get(text, text)


def _allowed_instead(key: str, known: Iterable[str], dashes: str = "") -> str:
    """The end of a sentence on an unknown key: the nearest known one, else what is allowed."""
    prefix, dot, name = key.rpartition(".")
    siblings = _children(prefix + dot, known)
    near = [prefix + dot + n for n in difflib.get_close_matches(name, siblings, n=1, cutoff=0.6)]
    near += [other for other in known if other.rpartition(".")[2] == name]  # in another group
    near += difflib.get_close_matches(key, list(known), n=1, cutoff=0.8)  # the group itself
    if near:
        return f"; did you mean {dashes}{near[0]}?"
    return f"; allowed here: {', '.join(sorted(siblings))}" if siblings else ""


def _explain(message: str, known: dict[str, Any]) -> tuple[str, str]:
    """The dotted key that a message is about ("" if none) and what is wrong with it."""
    keys = re.findall(r'Parser key "([^"]+)"', message)
    classes = re.findall(r"Problem with given class_path '([^']+)'", message)
    key = ".".join(keys)
    if found := re.match(r"unrecognized arguments: (\S+)", message):
        option = found[1].partition("=")[0]
        if not option.startswith("-"):
            return "", f"unexpected argument {option!r} (each value stands behind its --option)"
        return "", f"unknown option {option}{_allowed_instead(option.lstrip('-'), known, '--')}"
    if found := re.match(r"argument (\S+?)(?:/\S+)?: expected .*argument", message):
        return "", f"{found[1]} needs a value after it"
    if found := re.match(r"the following arguments are required: (.*)", message):
        missing = [f"--{name}" for name in found[1].split(", ")]
        return "", f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    if "nable to load config" in message and keys:
        inside = ", ".join(f"--{keys[0]}.{name}" for name in _children(keys[0] + ".", known))
        return "", f"--{keys[0]} is a group of settings: give one of {inside}"
    if (found := re.search(r"'([^']+)' is not accepted", message)) and classes:
        allowed = [field.name for field in dataclasses.fields(import_class(classes[-1]))]
        told = f"{classes[-1]} has no setting {found[1]}"
        instead = _allowed_instead(found[1], allowed) or "; it has none at all"
        return f"{key}.{found[1]}", told + instead
    if (found := re.search(r"arguments are required: (.+)", message)) and classes:
        missing = [f"{key}.{name.strip()}" for name in found[1].split(",")]
        are = "is" if len(missing) == 1 else "are"
        return key, f"{' and '.join(missing)} {are} missing; {classes[-1]} has no default for it"
    if not keys:
        return "", " ".join(message.split())
    hint = _type_of(keys, classes, known)
    if found := re.search(r"(?:Got value|Given value): (.*)", message):
        shown = _shown(found[1])
        told = f"{key} must be {in_words(hint)}, got {shown}"
        if shown in ("true", "false"):
            told += " (YAML reads a bare on, off, yes or no so: put it into quotes)"
        return key, told
    wrong = re.search(r"Import path (\S+) does not|import path string: (\S+)", message)
    path = next(filter(None, wrong.groups())) if wrong else classes[-1] if classes else ""
    base = _class_in(hint)
    if path and base and path not in _subclass_paths(base):
        reason = f"is not a kind of {base.__name__}" if wrong else "was not found"
        return key, f"{key}: {path} {reason}{_nearest_class(path, _subclass_paths(base))}"
    return key, f"{key}: {' '.join(message.split())}"


def _nearest_class(path: str, paths: list[str]) -> str:
    by_name = {other.rpartition(".")[2].lower(): other for other in paths}
    near = difflib.get_close_matches(path.rpartition(".")[2].lower(), list(by_name), n=1)
    if near:
        return f"; did you mean {by_name[near[0]]}?"
    return f"; known: {', '.join(paths)}" if paths else ""


def _destinations(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Dotted key -> type (None where it has none), for every option that holds a setting."""
    return {
        action.dest: getattr(action, "_typehint", None)
        for action in parser._actions
        if action.option_strings
        and not action.dest.endswith(".help")
        and not action.dest.startswith(("help", "config", "print_"))
    }


def _children(prefix: str, known: Iterable[str]) -> list[str]:
    inside = (key.removeprefix(prefix) for key in known if key.startswith(prefix))
    return list(dict.fromkeys(name.partition(".")[0] for name in inside))


def _type_of(keys: list[str], classes: list[str], known: dict[str, Any]) -> Any:
    """The type of the innermost of nested keys, each inside the class of the one before."""
    if len(keys) == 1:
        return known.get(keys[0])
    return get_type_hints(import_class(classes[len(keys) - 2])).get(keys[-1])


def _class_in(hint: Any) -> type | None:
    if inspect.isclass(hint):
        return hint if hint is not type(None) else None
    return next(filter(None, map(_class_in, get_args(hint))), None)


def _subclass_paths(base: type) -> list[str]:
    """Dotted paths of the concrete kinds of `base`, found in the package that declares it."""
    package = importlib.import_module(base.__module__.rpartition(".")[0] or base.__module__)
    for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
        importlib.import_module(f"{package.__name__}.{module.name}")
    found, waiting = set(), [base]
    while waiting:
        cls = waiting.pop()
        waiting.extend(cls.__subclasses__())
        if cls is not base and not inspect.isabstract(cls):
            found.add(f"{cls.__module__}.{cls.__qualname__}")
    return sorted(found)
