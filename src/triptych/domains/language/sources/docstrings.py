"""Docstrings of installed packages as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from triptych.domains.docstrings import Docstring, read_docstrings
from triptych.domains.language.sources.base import Document, TextSource
from triptych.files.splits import check_shares, split_by_hash
from triptych.types import FractionBelowOne


@dataclass(frozen=True)
class Docstrings(TextSource):
    """Prose of the docstrings of installed packages; each docstring is a document.

    All docstrings of a module are in one split. A paragraph that occurs several times is kept where
    it occurs first, so that no paragraph is in two splits.
    """

    packages: tuple[str, ...] = ("numpy", "scipy", "sklearn", "matplotlib")
    """Names of installed packages; `python` is the standard library."""
    held_out: FractionBelowOne = 0.05
    """Share (0 to 1) of the modules that is held out for validation, chosen by hash, and share of
    those held out for test."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.held_out, self.held_out)
        if not self.packages:
            raise ValueError("packages is empty; expected at least one package, such as numpy")

    def splits(self) -> list[str]:
        return ["train", "validation", "test"]

    def read(self, split: str) -> list[Document]:
        docstrings = split_docstrings(self.packages, self.held_out, split)
        return [[sentence for part in new for sentence in part] for _, new in docstrings]


def split_docstrings(
    packages: Sequence[str], held_out: float, split: str
) -> Iterator[tuple[Docstring, list[tuple[str, ...]]]]:
    """Yield the docstrings of a split with those of their paragraphs that occur first there.

    A module is in one split; held_out: share of the modules for validation, and again for test.
    """
    shares = {"validation": held_out, "test": held_out}
    seen: set[tuple[str, ...]] = set()
    for package in packages:
        for docstring in read_docstrings(package):
            new = [each for each in docstring.paragraphs if each not in seen]
            new = list(dict.fromkeys(new))
            seen.update(new)
            module = f"{package}/{docstring.file}".encode()
            if new and split_by_hash(module, shares) == split:
                yield docstring, new
