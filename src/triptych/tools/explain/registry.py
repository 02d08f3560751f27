"""Names of the figures and their modules. Imports nothing heavy."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from triptych.errors import UserError, meant
from triptych.tools.explain import figures

if TYPE_CHECKING:
    from triptych.tools.explain.figure import Figure

ALL = "all"
"""Name that stands for every figure."""


def descriptions() -> dict[str, str]:
    """Return the names of the figures, sorted, each with one sentence on what it shows.

    The sentence is the first line of the module's docstring, which is read without an import.
    """
    sentences = {}
    for path in sorted(Path(figures.__path__[0]).glob("*.py")):
        if path.stem != "__init__":
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            sentences[path.stem.replace("_", "-")] = text.partition("\n")[0]
    return sentences


def check_name(name: str) -> None:
    """Raise UserError for a name that is neither a figure nor `all`."""
    known = [*descriptions(), ALL]
    if name not in known:
        instead = meant(name, known, f"expected one of {', '.join(known)}")
        raise UserError(f"there is no figure {name!r}; {instead}")


def find_figure(name: str) -> Figure:
    """Import the figure of a name that `descriptions` has."""
    figure: Figure = import_module(f"{figures.__name__}.{name.replace('-', '_')}").FIGURE
    return figure
