"""`triptych learn`: exercises as files of functions to fill in, and the program that checks them.

Imports nothing heavy, so that help appears at once.
"""

import ast
import copy
import inspect
import runpy
import textwrap
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from triptych.domains.options import CommandOptions, argument
from triptych.errors import UserError, unknown
from triptych.files.progress import aligned

HEADER = """\
\"\"\"Exercises of the page {page}: replace each `raise`, then run triptych learn check FILE.\"\"\"

from __future__ import annotations

import torch
from torch import Tensor
"""
TOLERANCE = 1e-5
"""Largest difference of right numbers, absolute and relative."""


@dataclass(frozen=True, kw_only=True)
class Learn(CommandOptions):
    """List the exercises, print a file of them to fill in, or check such a file.

    list: page of docs/, level, function and task of each exercise. start PAGE: print the functions
    of a page, with what they take and return; triptych learn start attention > attention.py makes a
    file. check FILE: run a file, and compare what its functions return with what Triptych's own
    code returns. The exit code is 1 where one is wrong or missing.
    """

    action: str
    name: str | None = None

    parser_arguments = argument(
        "action", "What to do.", choices=["list", "start", "check"]
    ) | argument("name", "A page to start with, or a file to check.", nargs="?", metavar="NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.action == "list") != (self.name is None):
            raise UserError("expected learn list, learn start PAGE, or learn check FILE")

    @staticmethod
    def overview() -> None:
        """List the exercises."""
        rows = [
            (each.page, each.level, name, (each.answer.__doc__ or "").partition("\n")[0])
            for name, each in _module().EXERCISES.items()
        ]
        print(*aligned(rows), sep="\n")

    def run(self) -> None:
        """Do it; raises UserError for a wrong page or file, SystemExit where one is wrong."""
        if self.name is None:
            self.overview()
        elif self.action == "start":
            print(blank(self.name), end="")
        else:
            file = Path(self.name)
            if not file.is_file():
                raise UserError(f"{self.name} is no file; expected one of functions to check")
            rows, right = check(file)
            print(*aligned(rows), sep="\n")
            if not right:
                raise SystemExit(1)


def _module() -> ModuleType:
    return import_module("triptych.tools.learn.exercises")  # imports torch


def blank(page: str) -> str:
    """Return the functions of a page as a Python file, with `raise` in place of their bodies.

    Raises UserError for a page without exercises.
    """
    exercises = _module().EXERCISES
    pages = list(dict.fromkeys(each.page for each in exercises.values()))
    if page not in pages:
        raise unknown("page with exercises", page, pages)
    parts = [HEADER.format(page=page)]
    for each in exercises.values():
        if each.page == page:
            node = ast.parse(textwrap.dedent(inspect.getsource(each.answer))).body[0]
            assert isinstance(node, ast.FunctionDef)
            node.decorator_list = []
            node.body = [node.body[0], *ast.parse("raise NotImplementedError").body]
            parts.append(f"\n\n{ast.unparse(node)}\n")
    return "".join(parts)


def check(file: Path) -> tuple[list[tuple[str, str]], bool]:
    """Check the functions of a file; return a line for each, its name and what is wrong.

    Every exercise of the pages of these functions is expected. The bool says whether all are
    right. Raises UserError for a file that does not run or has none of the functions.
    """
    import torch

    try:
        found = runpy.run_path(str(file))
    except (Exception, SystemExit) as error:
        raise UserError(f"{file} does not run: {_said(error, file)}") from error
    exercises = _module().EXERCISES
    pages = {each.page for name, each in exercises.items() if name in found}
    if not pages:
        raise UserError(
            f"{file} has no function of the exercises; `triptych learn start PAGE` prints them"
        )
    rows = []
    for name, each in exercises.items():
        if each.page in pages:
            torch.manual_seed(0)
            wrong = _fault(found.get(name), each.answer, [*each.inputs()], file)
            rows.append((name, f"wrong: {wrong}" if wrong else "right"))
    return rows, all(result == "right" for _, result in rows)


def _fault(
    function: Any, answer: Callable[..., Any], calls: list[tuple[Any, ...]], file: Path
) -> str | None:
    """Return what is wrong with a function; None where it answers all calls as `answer` does."""
    if not callable(function):
        return "the file has no such function"
    for arguments in calls:
        expected = answer(*copy.deepcopy(arguments))
        try:
            got = function(*arguments)
        except NotImplementedError:
            return "to be done"
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # Ctrl-C: an endless loop
            return _said(error, file)
        if (wrong := difference(got, expected)) is not None:
            return wrong
    return None


def _said(error: BaseException, file: Path) -> str:
    """Return an error in one line, with the last line of the file that took part in it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    where = "" if line is None else f"line {line}: "
    message = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{where}{type(error).__name__}{f': {message}' if message else ''}"


def difference(got: Any, expected: Any) -> str | None:
    """Return the first difference of two values in one line; None where they are equal.

    Values are tensors, numbers, texts, and tuples and lists of them.
    """
    import torch

    if isinstance(expected, tuple) and isinstance(got, tuple | list) and len(got) == len(expected):
        parts = map(difference, got, expected)
        return next((f"item {i}: {part}" for i, part in enumerate(parts) if part), None)
    if isinstance(expected, torch.Tensor | int | float):
        if not isinstance(got, torch.Tensor | int | float):
            return f"returns {_kind(got)}, expected {_kind(expected)}"
        one, other = torch.as_tensor(got), torch.as_tensor(expected)
        if one.shape != other.shape or (one.dtype == torch.bool) != (other.dtype == torch.bool):
            return f"returns {_kind(one)}, expected {_kind(other)}"
        near = torch.isclose(one.double(), other.double(), TOLERANCE, TOLERANCE)
        for index in (~near).nonzero()[:1].tolist():
            at, place = tuple(index), f" at {index}" if index else ""
            return f"{one[at].item():.6g}{place}, expected {other[at].item():.6g}"
        return None
    if type(got) is not type(expected):
        return f"returns {_kind(got)}, expected {_kind(expected)}"
    return None if got == expected else f"{got!r}, expected {expected!r}"


def _kind(value: Any) -> str:
    """Return what a value is, with shape and type of a tensor and the length of a tuple or list."""
    name = type(value).__name__
    if hasattr(value, "dtype"):
        return f"{name} {list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return f"{name} of {len(value)}" if isinstance(value, tuple | list) else name
