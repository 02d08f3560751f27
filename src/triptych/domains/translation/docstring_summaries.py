"""Summaries that need no download: docstrings of installed packages, and their first sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Literal

from triptych.domains.docstrings import Docstring, read_docstrings
from triptych.domains.translation.sources import Corpus, Pair
from triptych.types import PositiveInt

HELD_OUT = ("test", "validation")
"""Splits whose texts no other split contains, the first one's first."""
MAX_SUMMARY_WORDS = 40
"""Largest number of words of a summary; a longer first sentence is no summary."""


@dataclass(frozen=True)
class DocstringSummaries(Corpus):
    """Pairs of a document, all sentences of docstrings but the first one, and this first sentence.

    The documents are the prose of the docstrings, without examples and tables; see
    `domains/docstrings.py`. Each split has packages of its own. A pair is left out if its document
    or its summary occurred before: in the test split, in the validation split, in training. The
    pairs depend on the versions of the packages.
    """

    target_language: str = "en"
    """Language code of the target; equal to the source's, so that ROUGE is computed."""
    train: list[str] = field(
        default_factory=lambda: [
            *("torch", "torchvision", "pytorch_lightning", "numpy", "scipy", "sympy"),
            *("matplotlib", "music21", "python"),
        ]
    )
    """Packages of the training split; python is the standard library."""
    validation: list[str] = field(default_factory=lambda: ["networkx"])
    """Packages of the validation split."""
    test: list[str] = field(default_factory=lambda: ["sklearn"])
    """Packages of the test split."""
    document: Literal["docstring", "module"] = "docstring"
    """Text of a document: one docstring, or all docstrings of one module, whose first sentence is
    that of the module's own docstring."""
    min_sentences: PositiveInt = 2
    """Minimum length of a document in sentences, without its summary."""
    max_words: PositiveInt | None = None
    """Number of words after which a document is cut, in all splits; null for whole documents."""

    def __post_init__(self) -> None:
        super().__post_init__()
        packages = [*self.train, *self.validation, *self.test]
        twice = sorted({name for name in packages if packages.count(name) > 1})
        if twice:
            raise ValueError(
                f"train, validation and test share the packages {', '.join(twice)}; expected "
                "packages of its own for each split"
            )

    def splits(self) -> list[str]:
        return ["train", *reversed(HELD_OUT)]

    def read(self, split: str) -> Iterable[Pair]:
        seen: set[str] = set()
        for name in (*HELD_OUT, "train"):
            pairs = [pair for package in getattr(self, name) for pair in self._of_package(package)]
            kept = []
            for document, summary in pairs:
                if document not in seen and summary not in seen:
                    kept.append((document, summary))
                    seen |= {document, summary}
            if name == split:
                return kept
        raise AssertionError(split)  # `pairs` has checked the name

    def _of_package(self, package: str) -> Iterator[Pair]:
        """Yield all pairs of a package, also those that occurred before."""
        for sentences in _documents(package, self.document):
            summary, *rest = sentences
            if len(rest) >= self.min_sentences and len(summary.split()) <= MAX_SUMMARY_WORDS:
                words = " ".join(rest).split(" ")
                yield " ".join(words[: self.max_words]), summary


@lru_cache(maxsize=32)
def _documents(package: str, document: str) -> tuple[tuple[str, ...], ...]:
    """Return the sentences of each document of a package, in the order of its files."""
    docstrings = read_docstrings(package)
    if document == "docstring":
        return tuple(map(_sentences, docstrings))
    modules = (list(group) for _, group in groupby(docstrings, lambda each: each.file))
    return tuple(
        tuple(sentence for docstring in module for sentence in _sentences(docstring))
        for module in modules
        if not module[0].name  # a module without a docstring has no summary
    )


def _sentences(docstring: Docstring) -> tuple[str, ...]:
    return tuple(sentence for paragraph in docstring.paragraphs for sentence in paragraph)
