"""Summaries: documents out of the docstrings of installed packages, and their first sentences.

Writes for each split (train, validation, test) two files with the columns `document` and `summary`:

- docstrings.SPLIT.tsv: a docstring without its first sentence, cut after some words, and this
  sentence;
- modules.SPLIT.tsv: all docstrings of a module, whole, and the first sentence of its own.

Each split has packages of its own. A pair is left out if its document or its summary occurred
before: in the test split, in the validation split, in training. baseline.tsv has the ROUGE of the
first sentence of each document (lead-1) and of a random one. versions.tsv has the versions of the
packages, on which the text depends; the licences of the packages apply to it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from triptych.domains.translation.metrics import ROUGE, rouge
from triptych.types import Checked, PositiveInt

from ._prose import Docstring, read_docstrings, versions

HEADER = ("document", "summary")
SPLITS = ("test", "validation", "train")
"""In the order in which a pair of two splits belongs to the first one."""
NO_MODULES = ("torch",)
"""Packages that modules.SPLIT.tsv leaves out, since many of their modules are too long to read."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
MAX_SUMMARY_WORDS = 40
"""Largest number of words of a summary; a longer first sentence is no summary."""


@dataclass(frozen=True)
class Options(Checked):
    """Packages by split; `python` is the standard library."""

    train: tuple[str, ...] = (
        *("torch", "scipy", "numpy", "matplotlib", "torchvision", "pytorch_lightning", "python"),
    )
    """Packages of the training split."""
    validation: tuple[str, ...] = ("networkx",)
    """Packages of the validation split."""
    test: tuple[str, ...] = ("sklearn",)
    """Packages of the test split."""
    min_sentences: PositiveInt = 2
    """Minimum length of a document in sentences, without its summary."""
    max_words: PositiveInt = 60
    """Number of words after which a document of docstrings.SPLIT.tsv is cut."""

    def __post_init__(self) -> None:
        super().__post_init__()
        packages = [*self.train, *self.validation, *self.test]
        twice = sorted({name for name in packages if packages.count(name) > 1})
        if twice:
            raise ValueError(
                f"train, validation and test share the packages {', '.join(twice)}; expected "
                "packages of its own for each split"
            )


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, ...]]]]:
    """Yield the files."""
    packages = {split: getattr(options, split) for split in SPLITS}
    of_package = {name: read_docstrings(name) for names in packages.values() for name in names}
    scores: list[tuple[str, ...]] = []
    for kind in ("docstrings", "modules"):
        seen: set[str] = set()
        for split, names in packages.items():
            pairs: list[tuple[str, str]] = []
            for name in names:
                if kind == "docstrings":
                    texts = [each.sentences for each in of_package[name]]
                    found = documents(texts, options.min_sentences, options.max_words)
                else:
                    texts = [] if name in NO_MODULES else modules(of_package[name])
                    found = documents(texts, options.min_sentences, None)
                pairs += found
            kept = []
            for document, summary in pairs:
                if document not in seen and summary not in seen:
                    kept.append((document, summary))
                    seen |= {document, summary}
            yield f"{kind}.{split}.tsv", [HEADER, *kept]
            if split != "train" and kept:
                scores += baselines(f"{kind}.{split}", kept)
    yield "baseline.tsv", [("split", "summary", *ROUGE), *scores]
    yield "versions.tsv", versions(of_package)


def modules(docstrings: Iterable[Docstring]) -> list[list[str]]:
    """Return the sentences of each module; one without a docstring of its own has no summary."""
    groups = [[*group] for _, group in groupby(docstrings, lambda each: each.file)]
    return [
        [sentence for each in group for sentence in each.sentences]
        for group in groups
        if not group[0].name
    ]


def documents(
    texts: Iterable[list[str]], min_sentences: int, max_words: int | None
) -> Iterator[tuple[str, str]]:
    """Yield each text without its first sentence, at most max_words long, and this sentence."""
    for summary, *rest in texts:
        if len(rest) >= min_sentences and len(summary.split()) <= MAX_SUMMARY_WORDS:
            yield " ".join(" ".join(rest).split(" ")[:max_words]), summary


def baselines(split: str, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """Yield the ROUGE of a sentence of each document in place of its summary."""
    sentences = [SENTENCE_END.split(document) for document, _ in pairs]
    generator = random.Random(0)
    chosen = {
        "lead-1": [first for first, *_ in sentences],
        "random sentence": [generator.choice(each) for each in sentences],
    }
    for name, texts in chosen.items():
        found = rouge(texts, [summary for _, summary in pairs])
        yield split, name, *(f"{value:.2f}" for value in found.values())
