"""Errors of settings as one sentence: the location, the value, what is allowed."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Any, get_type_hints

from triptych.config.hints import class_in, in_words, is_part, subclass_paths
from triptych.errors import UserError, nearest

Locate = Callable[[str], str]
"""Returns where a dotted key was set, as the beginning of a sentence: `configs/x.yaml, line 12`."""


def check_keys(parser: argparse.ArgumentParser, plain: Any, locate: Locate) -> None:
    """Raise UserError for an unknown key, and for a value in place of a group of settings."""
    commands = {a.dest for a in parser._actions if a.nargs == 0 or a.default is argparse.SUPPRESS}
    known = {key: hint for key, hint in _types(parser).items() if key not in commands}
    _check_group(plain, "", known, locate)


def _check_group(plain: Any, prefix: str, known: dict[str, Any], locate: Locate) -> None:
    if not isinstance(plain, dict):
        group = prefix.rstrip(".") or "the whole"
        inside = ", ".join(_children(prefix, known))
        raise UserError(
            f"{locate(group)}: {group} is a group of settings ({inside}), got {_shown(plain)}"
        )
    for name, value in plain.items():
        key = f"{prefix}{name}"
        if _children(f"{key}.", known):
            _check_group(value, f"{key}.", known, locate)
        elif key not in known:
            raise UserError(f"{locate(key)}: {_unknown(key, known)}")
        elif isinstance(value, dict) and is_part(known[key]):
            # jsonargparse would take other keys for settings of the default class.
            form = dict.fromkeys((f"{key}.class_path", f"{key}.init_args"))
            _check_group(value, f"{key}.", form, locate)


@contextmanager
def sentences(parser: argparse.ArgumentParser, locate: Locate) -> Iterator[None]:
    """Turn errors of jsonargparse into a UserError of one sentence that begins with a location."""
    try:
        yield
    except argparse.ArgumentError as error:
        key, problem = _explain(str(error), _types(parser))
        raise UserError(f"{locate(key)}: {problem}") from error


def _explain(message: str, known: dict[str, Any]) -> tuple[str, str]:
    """Return the dotted key that a message of jsonargparse is about, or "", and the problem."""
    # For a setting of a part: Parser key "K": Problem with given class_path 'C': Parser key ...
    keys = re.findall(r'Parser key "([^"]+)"', message)
    classes = re.findall(r"class_path '([^']+)'", message)
    problem = " ".join(re.split(r'Parser key "[^"]+":|class_path \'[^\']+\':', message)[-1].split())
    key = ".".join(dict.fromkeys(keys))
    if found := re.match(r"unrecognized arguments: (-*)([^ =]+)", problem):
        return "", _unknown(found[2], known, dashes=found[1])
    if found := re.match(r"Option '([^']+)' is not accepted", problem):
        fields = [f"{key}.{field.name}" for field in dataclasses.fields(resolve_name(classes[-1]))]
        key = f"{key}.{found[1]}"
        return key, f"{classes[-1]}: {_unknown(key, fields)}"
    if not keys:
        return "", problem
    hint = known.get(keys[0])
    for cls, name in zip(classes, keys[1:], strict=False):
        hint = get_type_hints(resolve_name(cls))[name]
    # Of a union every member has its own value; the last one is that of the whole.
    if found := re.search(r".*(?:Got|Given) value: (.*?)(?: Subclass types|$)", problem):
        shown = _shown(found[1])
        quotes = " (YAML reads unquoted on, off, yes and no as such; quote them)"
        wanted = f"{key} must be {in_words(hint)}, got {shown}"
        return key, wanted + (quotes if shown in ("true", "false") else "")
    named = re.search(r"import path string: (\S+)|Import path (\S+) does", problem)
    path = (named[1] or named[2]) if named else classes[-1] if classes else ""
    base = class_in(hint)
    if path and base is not None and path not in (kinds := subclass_paths(base)):
        names = {kind.rpartition(".")[2]: kind for kind in kinds}
        instead = _instead(path.rpartition(".")[2], names)
        return key, f"{key}: {path} is not a kind of {base.__name__}{instead}"
    return key, f"{': '.join([key, *classes[-1:]])}: {problem}"


def _unknown(key: str, known: Iterable[str], *, dashes: str = "") -> str:
    group, dot, name = key.rpartition(".")
    elsewhere = [other for other in known if other.rpartition(".")[2] == name]
    siblings = {n: f"{dashes}{group}{dot}{n}" for n in sorted(_children(group + dot, known))}
    near = f"; did you mean {dashes}{elsewhere[0]}?" if elsewhere else _instead(name, siblings)
    return f"unknown key {dashes}{key}{near}"


def _instead(word: str, names: dict[str, str]) -> str:
    """Return the end of a sentence: the full form of the name nearest to a word, or all names."""
    if near := nearest(word, names):
        return f"; did you mean {names[near]}?"
    return f"; allowed here: {', '.join(names) or 'nothing'}"


def _shown(value: Any) -> str:
    """Return a value as YAML writes it."""
    text = str(value).strip()
    return {"None": "null", "True": "true", "False": "false"}.get(text, text)


def _types(parser: argparse.ArgumentParser) -> dict[str, Any]:
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
