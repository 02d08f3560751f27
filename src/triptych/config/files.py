"""YAML files of settings, with the line of each key. Imports nothing heavy."""

import os
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from triptych.errors import UserError, nearest


def at_home(value: Any) -> Any:
    """Return a value with the home folder for `~/`, which a shell leaves in `--out=~/x`."""
    if isinstance(value, str):
        return os.path.expanduser(value) if value.startswith("~/") else value
    if isinstance(value, list | tuple):
        return type(value)(map(at_home, value))
    if isinstance(value, dict):
        return {key: at_home(each) for key, each in value.items()}
    if isinstance(value, Namespace):
        vars(value).update({key: at_home(each) for key, each in vars(value).items()})
    return value


@dataclass(frozen=True)
class SettingsFile:
    """Content of a settings file, and the line from 1 of each dotted key, without `init_args`."""

    path: Path
    text: str
    content: dict[str, Any]
    lines: dict[str, int]

    def locate(self, key: str) -> str:
        """Return the location of a key for an error: `file, line 12`, or the file alone."""
        line = self.lines.get(key)
        return f"{self.path}, line {line}" if line else str(self.path)


def read_settings_file(path: Path) -> SettingsFile:
    """Read a YAML file of settings; UserError also for a key twice, of which PyYAML takes one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"the settings file {path} does not exist{_near(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the settings file {path} cannot be read: {error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise UserError(f"{path}{position} is not YAML: {problem}") from None
    if not isinstance(node, yaml.MappingNode):
        held = "nothing" if content is None else f"a {type(content).__name__}"
        raise UserError(f"{path} must hold groups of settings (`model:` ...), but holds {held}")
    lines: dict[str, int] = {}
    _collect_lines(node, "", lines, path)
    return SettingsFile(path, text, content, lines)


def _near(path: Path) -> str:
    """Return the end of a sentence on a missing file: the nearest name in its folder."""
    if not path.parent.is_dir():
        return f", nor does its folder {path.parent}"
    there = [other.name for other in path.parent.iterdir() if other.suffix in (".yaml", ".yml")]
    near = nearest(path.name, there)
    return f"; did you mean {path.parent / near}?" if near else "; expected a YAML file"


def _collect_lines(node: yaml.MappingNode, prefix: str, lines: dict[str, int], path: Path) -> None:
    for key_node, value_node in node.value:
        key = prefix + str(key_node.value)
        line = key_node.start_mark.line + 1
        if key in lines:
            raise UserError(f"{path}, line {line}: {key} was already set on line {lines[key]}")
        lines[key] = line
        if isinstance(value_node, yaml.MappingNode):
            inside = prefix if key_node.value == "init_args" else key + "."
            _collect_lines(value_node, inside, lines, path)
