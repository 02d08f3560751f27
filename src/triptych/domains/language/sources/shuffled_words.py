"""Sentences of a text, half of them with their words in another order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from triptych.domains.language.sources.base import TextSource
from triptych.domains.language.sources.docstrings import Docstrings
from triptych.domains.language.sources.labelled import Labelled, LabelledSource
from triptych.types import IntAboveOne

MIN_WORDS, MAX_WORDS = 5, 30
"""Lengths of the sentences that are kept; the end of a longer one may be cut off by a model."""


@dataclass(frozen=True)
class ShuffledWords(LabelledSource):
    """Sentences with the label `original` or `shuffled`, for classification by word order.

    Both classes have the same words, so that a bag of words cannot tell them apart. The first and
    the last word stay, because a capital letter and a full stop show their places. A similar task
    exchanges two neighbouring words (Conneau et al. 2018, section 2, "bigram shift").
    """

    text: TextSource = field(default_factory=Docstrings)
    """Source of the sentences, by class path: Docstrings or TextFiles."""
    window: IntAboveOne | None = None
    """Number of neighbouring words that are shuffled among each other, at least 2; fewer make the
    task harder; null for all words of the sentence."""

    def splits(self) -> list[str]:
        return self.text.splits()

    def read(self, split: str) -> list[Labelled]:
        """Return each sentence once; those of the training split are in no other one."""
        known = set() if split == "train" else set(self._sentences("train"))
        return [
            self._example(sentence)
            for sentence in self._sentences(split)
            if sentence not in known and self._can_change(sentence.split())
        ]

    def _sentences(self, split: str) -> list[str]:
        every = (sentence for document in self.text.documents(split) for sentence in document)
        return list(dict.fromkeys(every))

    def _groups(self, words: list[str]) -> list[list[str]]:
        """Return the words without the first and the last one, in groups of `window`."""
        inner = words[1:-1]
        size = self.window or len(inner)
        return [inner[start : start + size] for start in range(0, len(inner), size)]

    def _can_change(self, words: list[str]) -> bool:
        """Return whether the length fits and another order of the words is another sentence."""
        return MIN_WORDS <= len(words) <= MAX_WORDS and any(
            len({word.lower() for word in group}) > 1 for group in self._groups(words)
        )

    def _example(self, sentence: str) -> Labelled:
        """Return the sentence with its label, which depends on the sentence alone."""
        draw = random.Random(sentence)
        words = sentence.split()
        if draw.random() < 0.5:
            return Labelled((" ".join(words),), "original")
        shuffled = words
        while [word.lower() for word in shuffled] == [word.lower() for word in words]:
            groups = self._groups(words)
            for group in groups:
                draw.shuffle(group)
            shuffled = [words[0], *(word for group in groups for word in group), words[-1]]
        return Labelled((" ".join(shuffled),), "shuffled")
