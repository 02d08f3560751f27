"""Reads a settings file and remembers on which line each key stands. Imports nothing heavy.

The command line calls this before anything else is loaded, so that a missing file or a slip in the
YAML is answered at once.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from triptych.errors import UserError


@dataclass(frozen=True)
class SettingsFile:
    """A settings file that is sound YAML.

    lines: dotted key (as on the command line, so without `init_args`) -> its line, from 1.
    """

    path: Path
    text: str
    content: dict[str, Any]
    lines: dict[str, int]

    def place(self, key: str) -> str:
        """Where `key` stands, to open an error sentence with: `file, line 12` or the file alone."""
        line = self.lines.get(key)
        return f"{self.path}, line {line}" if line else str(self.path)


def read_settings_file(path: Path) -> SettingsFile:
    """Read one YAML file of settings.

    Raises UserError where it is missing, unreadable, not YAML, empty, not a mapping, or says a key
    twice (YAML would silently take the last).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"the settings file {path} does not exist{_near(path)}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"the settings file {path} is not UTF-8 text: {error}") from None
    except OSError as error:
        raise UserError(f"the settings file {path} cannot be read: {error.strerror}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}{place} is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(node, yaml.MappingNode):
        found = "nothing" if content is None else f"a {type(content).__name__}"
        raise UserError(f"{path} must hold groups of settings (`model:` ...), but holds {found}")
    lines: dict[str, int] = {}
    _collect_lines(node, "", lines, path)
    return SettingsFile(path, text, content, lines)


def _near(path: Path) -> str:
    """The end of a sentence on a missing file: the one in its folder that may have been meant."""
    if not path.parent.is_dir():
        return f", nor does its folder {path.parent}"
    there = [other.name for other in path.parent.iterdir() if other.suffix in (".yaml", ".yml")]
    near = difflib.get_close_matches(path.name, there, n=1)
    return f"; did you mean {path.parent / near[0]}?" if near else "; expected a YAML file"


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
