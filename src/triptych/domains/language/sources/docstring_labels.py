"""Labelled docstrings of installed packages: the package, and the first sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from triptych.domains.language.sources.docstrings import Docstrings, split_docstrings
from triptych.domains.language.sources.labelled import Labelled, LabelledSource
from triptych.files.splits import check_shares
from triptych.training.loading.batches import generator_for
from triptych.types import FractionBelowOne, IntAboveOne

SEED = 23
"""Number that, with that of an example, seeds its candidates."""


@dataclass(frozen=True)
class DocstringLabels(LabelledSource):
    """Docstrings with labels; the modules are in the same splits as those of `Docstrings`."""

    packages: tuple[str, ...] = Docstrings.packages
    """Names of installed packages; `python` is the standard library."""
    held_out: FractionBelowOne = 0.1
    """Share (0 to 1) of the modules that is held out for validation, chosen by hash, and share of
    those held out for test."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.held_out, self.held_out)
        if len(self.packages) < 2:
            raise ValueError(f"packages are {list(self.packages)}; expected two packages or more")

    def splits(self) -> list[str]:
        return ["train", "validation", "test"]


@dataclass(frozen=True)
class DocstringPackages(DocstringLabels):
    """Docstrings, each with the package that it comes from, for classification.

    A paragraph that occurs several times is kept where it occurs first, so that no paragraph has
    two labels or is in two splits.
    """

    def read(self, split: str) -> list[Labelled]:
        docstrings = split_docstrings(self.packages, self.held_out, split)
        return [
            Labelled((" ".join(sentence for part in new for sentence in part),), each.package)
            for each, new in docstrings
        ]


@dataclass(frozen=True)
class DocstringChoices(DocstringLabels):
    """The text of a docstring and first sentences, of which one is its own, for multiple choice.

    The others are first sentences of the same package and split.
    """

    n_candidates: IntAboveOne = 4
    """Number of first sentences, the right one included."""

    def read(self, split: str) -> list[Labelled]:
        by_package: dict[str, list[tuple[str, str]]] = {}
        for docstring, new in split_docstrings(self.packages, self.held_out, split):
            first, *others = [sentence for part in new for sentence in part]
            if others:
                by_package.setdefault(docstring.package, []).append((first, " ".join(others)))
        examples = []
        for pairs in by_package.values():
            firsts = list(dict.fromkeys(first for first, _ in pairs))
            if len(firsts) >= self.n_candidates:
                numbered = enumerate(pairs)
                examples += [self._example(*pair, firsts, number) for number, pair in numbered]
        return examples

    def _example(self, first: str, body: str, firsts: Sequence[str], number: int) -> Labelled:
        """Return the body with its own first sentence at a random place among others."""
        draw = generator_for(SEED, number)
        order = torch.randperm(len(firsts), generator=draw).tolist()
        others = [firsts[each] for each in order[: self.n_candidates] if firsts[each] != first]
        place = int(torch.randint(self.n_candidates, (), generator=draw))
        candidates = others[: self.n_candidates - 1]
        candidates.insert(place, first)
        return Labelled((body, *candidates), str(place + 1))
