"""Docstrings of installed Python packages as prose.

The files are parsed and not imported. What is read depends on the versions of the packages alone.
"""

from __future__ import annotations

import ast
import re
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from platform import python_version

from triptych.errors import UserError
from triptych.files.reading import read_in_order

STANDARD_LIBRARY = "python"
"""Name of the standard library in a list of packages."""
OMITTED_FOLDERS = {"test", "tests", "testing", "idle_test", "site-packages", "_vendor", "vendor"}
"""Names of folders whose files are not read."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_MARKUP = re.compile(r">>>|::|^\s*\.\. |^\s*[-=~^*+]{3,}|^\s*\|", re.MULTILINE)
_QUOTES = re.compile(r"`|\[\d+\]_")
_LETTERS = re.compile(r"[A-Za-z ]")
MIN_WORDS = 4
"""Smallest number of words of a paragraph of prose."""
MIN_LETTERS = 0.85
"""Smallest share of letters and spaces in a paragraph of prose."""


@dataclass(frozen=True)
class Docstring:
    """Prose of one docstring."""

    package: str
    """Package that it comes from."""
    file: str
    """Path of its module's file, from the package's folder on."""
    name: str
    """Name of the function or class inside the module; empty for the module itself."""
    paragraphs: tuple[tuple[str, ...], ...]
    """Sentences of each paragraph, without code, tables and other markup."""

    @property
    def sentences(self) -> list[str]:
        """All sentences in order."""
        return [sentence for paragraph in self.paragraphs for sentence in paragraph]


def read_docstrings(package: str) -> list[Docstring]:
    """Return the docstrings of an installed package, or of `python`, in the order of its files.

    Files that this version of Python cannot parse are left out. Raises UserError for a package that
    is not installed.
    """
    texts = read_texts(package)
    proses = ((file, name, tuple(prose(text))) for file, name, text in texts)
    return [Docstring(package, file, name, parts) for file, name, parts in proses if parts]


def read_texts(package: str) -> list[tuple[str, str, str]]:
    """Return file, name and whole text of each docstring, as `read_docstrings` does."""
    root = package_folder(package)
    inside = (path.relative_to(root) for path in root.rglob("*.py"))
    paths = sorted(
        (path for path in inside if not OMITTED_FOLDERS.intersection(path.parts)),
        key=lambda path: path.parts,
    )
    docstrings = read_in_order(
        partial(_read_file, root), paths, count=len(paths), what=f"files of {package}"
    )
    return [each for of_file in docstrings for each in of_file]


def package_folder(package: str) -> Path:
    """Return the folder of a package's files; UserError where it is not installed."""
    if package == STANDARD_LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"the package {package!r} is not installed; expected installed packages such as numpy, "
            f"or {STANDARD_LIBRARY} for the standard library"
        )
    return Path(spec.submodule_search_locations[0])


def versions(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each package and its version, on which the text depends."""
    known = metadata.packages_distributions()
    for package in packages:
        own = package == STANDARD_LIBRARY or package not in known
        yield package, python_version() if own else metadata.version(known[package][0])


def _read_file(root: Path, path: Path) -> list[tuple[str, str, str]]:
    try:
        tree = ast.parse((root / path).read_bytes())
    except (SyntaxError, ValueError, OSError):
        return []
    return [(path.as_posix(), name, text) for name, text in _texts(tree, "")]


def _texts(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of a module, its classes and its functions, in order."""
    assert isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    if text := ast.get_docstring(node):
        yield name, text
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _texts(child, f"{name}.{child.name}".lstrip("."))


def prose(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the sentences of each paragraph of prose in a docstring.

    A paragraph is a run of lines of one indentation. Examples, directives, tables, headings and
    names of parameters are left out: prose has a capital letter first, a full stop last, at least
    MIN_WORDS words, and consists of letters for the most part.
    """
    for block in re.split(r"\n\s*\n", textwrap.dedent(text)):
        for lines in _same_indentation(block.split("\n")):
            paragraph = " ".join(_QUOTES.sub("", " ".join(lines)).split())
            if _is_prose(paragraph, "\n".join(lines)):
                yield tuple(_SENTENCE_END.split(paragraph))


def _same_indentation(lines: list[str]) -> Iterator[list[str]]:
    run: list[str] = []
    for line in lines:
        if run and _indentation(line) != _indentation(run[-1]):
            yield run
            run = []
        run.append(line)
    yield run


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_prose(paragraph: str, lines: str) -> bool:
    return (
        paragraph.count(" ") >= MIN_WORDS - 1
        and paragraph[0].isupper()
        and paragraph[-1] in ".!?"
        and len(_LETTERS.findall(paragraph)) >= MIN_LETTERS * len(paragraph)
        and not _MARKUP.search(lines)
    )
