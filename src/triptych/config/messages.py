"""Errors of settings as one sentence: the location, the value, what is allowed."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

from triptych.config.hints import (
    allows_null,
    class_in,
    import_class,
    in_words,
    is_part,
    subclass_paths,
)
from triptych.errors import UserError

Locate = Callable[[str], str]
"""Returns where a dotted key was set, as the beginning of a sentence: `configs/x.yaml, line 12`."""


def check_keys(parser: argparse.ArgumentParser, plain: Any, locate: Locate) -> None:
    """Raise UserError for an unknown key, a value in place of a group, and a forbidden null."""
    flags = {action.dest for action in parser._actions if action.nargs == 0}
    known = {key: hint for key, hint in _destinations(parser).items() if key not in flags}
    _check_keys(plain, "", known, locate)


def sentence(parser: argparse.ArgumentParser, message: str, locate: Locate) -> str:
    """Return an error message of jsonargparse as one sentence that begins with the location."""
    key, problem = _explain(message, _destinations(parser))
    return f"{locate(key)}: {problem}"


def _check_keys(plain: Any, prefix: str, known: dict[str, Any], locate: Locate) -> None:
    if not isinstance(plain, dict):
        group = prefix.rstrip(".") or "the whole"
        inside = ", ".join(_children(prefix, known))
        raise UserError(
            f"{locate(group)}: {group} is a group of settings ({inside}), got {_shown(plain)}"
        )
    for name, value in plain.items():
        key = f"{prefix}{name}"
        if _children(key + ".", known):
            _check_keys(value, key + ".", known, locate)
        elif key not in known:
            raise UserError(f"{locate(key)}: unknown key {key}{_allowed_instead(key, known)}")
        elif value is None and known[key] is not None and not allows_null(known[key]):
            raise UserError(f"{locate(key)}: {key} must be {in_words(known[key])}, got null")
        elif isinstance(value, dict) and is_part(known[key]):
            _check_part(value, key, known[key], locate)


def _check_part(value: dict[str, Any], key: str, hint: Any, locate: Locate) -> None:
    """Raise UserError for a part that is no class path with arguments; jsonargparse is unclear."""
    form = ("class_path", "init_args")
    for name in value:
        if name in form or ("class_path" not in value and not _names_near(form, name)):
            continue
        near = _names_near(form, name)
        instead = f"did you mean {near[0]}?" if near else "allowed here: class_path, init_args"
        raise UserError(f"{locate(f'{key}.{name}')}: unknown key {key}.{name}; {instead}")
    arguments = value.get("init_args")
    if arguments is not None and not isinstance(arguments, dict):
        raise UserError(
            f"{locate(f'{key}.init_args')}: {key}.init_args must be settings by name "
            f"(`name: value`), got {_shown(arguments)}"
        )


def _names_near(allowed: Iterable[str], name: object) -> list[str]:
    return difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.75)


def _shown(value: Any) -> str:
    """Return a value as YAML writes it."""
    text = str(value).strip()
    return {"None": "null", "True": "true", "False": "false"}.get(text, text)


def _allowed_instead(key: str, known: Iterable[str], dashes: str = "") -> str:
    """Return the end of a sentence on an unknown key: the nearest known key, else all of them."""
    prefix, dot, name = key.rpartition(".")
    siblings = _children(prefix + dot, known)
    near = [prefix + dot + n for n in difflib.get_close_matches(name, siblings, n=1, cutoff=0.6)]
    near += [other for other in known if other.rpartition(".")[2] == name]  # in another group
    near += difflib.get_close_matches(key, list(known), n=1, cutoff=0.8)  # the group itself
    if near:
        return f"; did you mean {dashes}{near[0]}?"
    return f"; allowed here: {', '.join(sorted(siblings))}" if siblings else ""


def _explain(message: str, known: dict[str, Any]) -> tuple[str, str]:
    """Return the dotted key that a message of jsonargparse is about, or "", and the problem."""
    keys = re.findall(r'Parser key "([^"]+)"', message)
    classes = re.findall(r"Problem with given class_path '([^']+)'", message)
    key = ".".join(keys)
    if found := re.match(r"unrecognized arguments: (\S+)", message):
        option = found[1].partition("=")[0]
        if not option.startswith("-"):
            return "", f"unexpected argument {option!r} (a value follows its --option)"
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
        instead = _allowed_instead(found[1], allowed) or "; it has none at all"
        return f"{key}.{found[1]}", f"{classes[-1]} has no setting {found[1]}{instead}"
    if (found := re.search(r"arguments are required: (.+)", message)) and classes:
        missing = [f"{key}.{name.strip()}" for name in found[1].split(",")]
        are = "is" if len(missing) == 1 else "are"
        return key, f"{' and '.join(missing)} {are} missing; {classes[-1]} has no default for it"
    if not keys:
        return "", " ".join(message.split())
    hint = _type_of(keys, classes, known)
    if found := re.search(r"(?:Got value|Given value): (.*)", message):
        shown = _shown(found[1])
        quotes = " (YAML reads unquoted on, off, yes and no as such; quote them)"
        problem = f"{key} must be {in_words(hint)}, got {shown}"
        return key, problem + (quotes if shown in ("true", "false") else "")
    wrong = re.search(r"Import path (\S+) does not|import path string: (\S+)", message)
    path = next(filter(None, wrong.groups())) if wrong else classes[-1] if classes else ""
    base = class_in(hint)
    if path and base and path not in subclass_paths(base):
        reason = f"is not a kind of {base.__name__}" if wrong else "was not found"
        return key, f"{key}: {path} {reason}{_nearest_class(path, subclass_paths(base))}"
    return key, f"{key}: {' '.join(message.split())}"


def _nearest_class(path: str, paths: list[str]) -> str:
    """Return the end of a sentence on an unknown class: the nearest one by name, else all."""
    by_name = {other.rpartition(".")[2].lower(): other for other in paths}
    near = difflib.get_close_matches(path.rpartition(".")[2].lower(), list(by_name), n=1)
    if near:
        return f"; did you mean {by_name[near[0]]}?"
    return f"; known: {', '.join(paths)}" if paths else ""


def _destinations(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return the type of every option that holds a setting, by dotted key; None for no type."""
    return {
        action.dest: getattr(action, "_typehint", None)
        for action in parser._actions
        if action.option_strings
        and not action.dest.endswith(".help")
        and not action.dest.startswith(("help", "config", "print_"))
    }


def _children(prefix: str, known: Iterable[str]) -> list[str]:
    """Return the names of the settings and groups directly below a prefix."""
    inside = (key.removeprefix(prefix) for key in known if key.startswith(prefix))
    return list(dict.fromkeys(name.partition(".")[0] for name in inside))


def _type_of(keys: list[str], classes: list[str], known: dict[str, Any]) -> Any:
    """Return the type of the last of nested keys, each in the class of the one before."""
    if len(keys) == 1:
        return known.get(keys[0])
    return get_type_hints(import_class(classes[len(keys) - 2])).get(keys[-1])
