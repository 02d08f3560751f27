"""Pairs of several source languages with one target language as one table, for one model of all.

Writes train.tsv, validation.tsv and test.tsv with the pairs of all configs in their order, and for
each held-out split a file of its own, such as ko.test.tsv, named by the source language; all have
the columns `source` and `target`. The model shares what it learns of the target language (Johnson
et al. 2017, arXiv 1611.04558); nothing but the sentence tells it the source language. The licences
of the corpora apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from triptych.errors import UserError
from triptych.types import Checked

from ._pairs import HEADER, corpus_of

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Options(Checked):
    """The corpora."""

    configs: tuple[str, ...] = ("ko-en", "zh-en")
    """Settings files, or names of shipped ones, whose data.source has the pairs of a language."""


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
    """Yield the files; UserError for configs of one source language, or of two target languages."""
    corpora = {c.source_language: c for c in (corpus_of(name, None) for name in options.configs)}
    targets = {corpus.target_language for corpus in corpora.values()}
    if len(corpora) != len(options.configs) or len(targets) > 1:
        raise UserError(
            f"{', '.join(options.configs)} have the source languages {', '.join(corpora)} and the "
            f"target languages {', '.join(targets)}; expected another source language in each, and "
            "one target language"
        )
    for split in SPLITS:
        pairs = (c.items(split) for c in corpora.values() if split in c.splits())
        yield f"{split}.tsv", [HEADER, *(pair for of_corpus in pairs for pair in of_corpus)]
    for language, corpus in corpora.items():
        for split in corpus.splits():
            if split != "train":
                yield f"{language}.{split}.tsv", [HEADER, *corpus.items(split)]
