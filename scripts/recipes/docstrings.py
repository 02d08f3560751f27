"""Prose of the docstrings of installed packages, and three sets of labelled lines out of it.

Writes for each split (train, validation, test):

- SPLIT.txt: a sentence a line, a blank line after each docstring;
- packages.SPLIT.tsv: a docstring, and the package that it comes from;
- choices.SPLIT.tsv: a docstring without its first sentence, first sentences of the same package
  and split, and the number of its own;
- order.SPLIT.tsv: a sentence, and whether its words are in their order (`original`) or `shuffled`;
  the first and the last word stay, since a capital letter and a full stop show their places.

All docstrings of a module are in one split. A paragraph that occurs several times is kept where it
occurs first. versions.tsv has the versions of the packages, on which the text depends; the licences
of the packages apply to it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from triptych.errors import UserError
from triptych.files.splits import check_shares, split_by_hash
from triptych.training.loading.batches import generator_for
from triptych.types import Checked, FractionBelowOne, IntAboveOne

from ._prose import read_docstrings, versions

SEED = 23
"""Number that, with that of an example, seeds its candidates."""
MIN_WORDS, MAX_WORDS = 5, 30
"""Lengths of the sentences of `order`; a model may cut off the end of a longer one."""
Docstrings = list[tuple[str, list[str]]]
"""Package and sentences of each docstring."""


@dataclass(frozen=True)
class Options(Checked):
    """What is read and how it is divided."""

    packages: tuple[str, ...] = ("numpy", "scipy", "sklearn", "matplotlib")
    """Names of installed packages; `python` is the standard library."""
    held_out: FractionBelowOne = 0.1
    """Share (0 to 1) of the modules that is held out for validation, chosen by hash, and share of
    those held out for test."""
    n_candidates: IntAboveOne = 4
    """Number of first sentences in `choices`, the right one included."""
    window: IntAboveOne | None = None
    """Number of neighbouring words that are shuffled among each other in `order`; fewer make the
    task harder; null for all words of the sentence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.held_out, self.held_out)


def main(options: Options) -> Iterator[tuple[str, Iterable[str | tuple[str, ...]]]]:
    """Yield the files."""
    splits = read_splits(options.packages, options.held_out)
    in_training: set[str] = set()
    for split, docstrings in splits.items():
        if not docstrings:
            raise UserError(f"the {split} split has no docstring; expected more packages")
        yield f"{split}.txt", (line for _, text in docstrings for line in (*text, ""))
        rows = ((" ".join(sentences), package) for package, sentences in docstrings)
        yield f"packages.{split}.tsv", rows
        yield f"choices.{split}.tsv", choices(docstrings, options.n_candidates)
        sentences = dict.fromkeys(sentence for _, text in docstrings for sentence in text)
        yield f"order.{split}.tsv", word_orders(sentences, in_training, options.window)
        if split == "train":
            in_training = {*sentences}
    yield "versions.tsv", versions(options.packages)


def read_splits(packages: Sequence[str], held_out: float) -> dict[str, Docstrings]:
    """Return the docstrings of each split with those of their paragraphs that occur first there.

    held_out: share of the modules for validation, and again for test.
    """
    splits: dict[str, Docstrings] = {"train": [], "validation": [], "test": []}
    shares = {"validation": held_out, "test": held_out}
    seen: set[tuple[str, ...]] = set()
    for package in packages:
        for docstring in read_docstrings(package):
            new = list(dict.fromkeys(part for part in docstring.paragraphs if part not in seen))
            seen.update(new)
            split = split_by_hash(f"{package}/{docstring.file}".encode(), shares)
            if new:
                splits[split].append((package, [sentence for part in new for sentence in part]))
    return splits


def choices(docstrings: Docstrings, n_candidates: int) -> Iterator[tuple[str, ...]]:
    """Yield the rest of each docstring, candidates for its first sentence, and the right number."""
    by_package: dict[str, list[tuple[str, str]]] = {}
    for package, (first, *others) in docstrings:
        if others:
            by_package.setdefault(package, []).append((first, " ".join(others)))
    for pairs in by_package.values():
        firsts = list(dict.fromkeys(first for first, _ in pairs))
        for number, (first, body) in enumerate(pairs if len(firsts) >= n_candidates else ()):
            draw = generator_for(SEED, number)
            order = torch.randperm(len(firsts), generator=draw).tolist()
            others = [firsts[each] for each in order[:n_candidates] if firsts[each] != first]
            place = int(torch.randint(n_candidates, (), generator=draw))
            candidates = others[: n_candidates - 1]
            candidates.insert(place, first)
            yield body, *candidates, str(place + 1)


def word_orders(
    sentences: Iterable[str], known: set[str], window: int | None
) -> Iterator[tuple[str, str]]:
    """Yield each sentence that is not known, as it is or shuffled, which depends on it alone.

    Both classes have the same words, so that a bag of words cannot tell them apart. A similar task
    exchanges two neighbouring words (Conneau et al. 2018, section 2, "bigram shift").
    """
    for sentence in sentences:
        words = sentence.split()
        fits = MIN_WORDS <= len(words) <= MAX_WORDS
        changes = any(len({word.lower() for word in group}) > 1 for group in _groups(words, window))
        if sentence in known or not fits or not changes:
            continue
        draw = random.Random(sentence)
        if draw.random() < 0.5:
            yield " ".join(words), "original"
            continue
        shuffled = words
        while [word.lower() for word in shuffled] == [word.lower() for word in words]:
            groups = _groups(words, window)
            for group in groups:
                draw.shuffle(group)
            shuffled = [words[0], *(word for group in groups for word in group), words[-1]]
        yield " ".join(shuffled), "shuffled"


def _groups(words: list[str], window: int | None) -> list[list[str]]:
    """Return the words without the first and the last one, in groups of `window`."""
    inner = words[1:-1]
    size = window or max(len(inner), 1)
    return [inner[start : start + size] for start in range(0, len(inner), size)]
