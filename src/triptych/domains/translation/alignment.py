"""Which words of a source the words of its translation read, by cross-attention."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from triptych.domains.translation import render
from triptych.domains.translation.markup import Pair, Word
from triptych.domains.translation.terms import Wanted, count_words
from triptych.text.tokenizer import IDEOGRAM

if TYPE_CHECKING:
    from triptych.decoding.beams import Hypothesis
    from triptych.domains.translation.inference import TranslationModel

Span = tuple[int, int]
WORD = re.compile(rf"[{IDEOGRAM}]|[^\W{IDEOGRAM}]+|[^\w\s]")
SPACED = re.compile(rf"[{IDEOGRAM}]|[^\s{IDEOGRAM}]+")
"""A word of `word_pairs`: what stands between spaces, and each Chinese or Japanese character."""


@dataclass(frozen=True)
class Attended:
    """A translation, its words and those of the source, by their places, and the weights."""

    text: str
    sources: list[Span]
    targets: list[Span]
    weights: list[list[float]]
    """Cross-attention of the last layer, mean of the heads: [word][source word]."""

    @classmethod
    def of(cls, model: TranslationModel, source: str, hypothesis: Hypothesis) -> Attended:
        """Return the weights of a source and a hypothesis; of an average its first model's."""
        reads = (model.averaged_from or (model,))[0].full_model
        attended = render.sentence_attention(reads, model.vocabulary, source, hypothesis)
        sources = _words(source, attended.source_pieces)
        targets = _words(attended.translation, attended.target_pieces)
        weights = [
            [sum(attended.cross[row][key] for row in rows for key in keys) for _, keys in sources]
            for _, rows in targets
        ]
        places, of_targets = ([span for span, _ in words] for words in (sources, targets))
        return cls(attended.translation, places, of_targets, weights)

    def pair(self, source: str) -> Pair:
        """Return the translation and its words, each with the source word that it reads most."""
        return Pair(source, self.text, [
            Word(start, end, self.sources[row.index(max(row))][0])
            for (start, end), row in zip(self.targets, self.weights, strict=True)
            if row
        ])  # fmt: skip

    def with_terms(self, terms: Sequence[Wanted]) -> Attended:
        """Return the translation with all terms as whole words, each where it is read."""
        counts = Counter(one.translation for one in terms)
        absent = {text for text, number in counts.items() if count_words(text, self.text) < number}
        todo = [one for one in terms if one.translation in absent]
        attended, settled = self, 0
        while todo:  # from left to right, so that none takes the place of another one
            (start, end), one = min((attended.span(one, settled), one) for one in todo)
            todo.remove(one)
            attended = attended.spliced(start, end, one)
            settled = attended.text.index(one.translation, start) + len(one.translation)
        return attended

    def span(self, term: Wanted, settled: int) -> Span:
        """Return the place of the words that read a term most, after `settled` characters.

        Where there is no such word, an empty place before the punctuation at the end.
        """
        keys = self._keys(term)
        free = [
            n for n, (a, _) in enumerate(self.targets) if a >= settled and self.text[a].isalnum()
        ]
        if not (free and keys):
            end = max(settled, len(self.text.rstrip(" .!?…。！？")))
            return end, end
        first = last = max(free, key=lambda n: sum(self.weights[n][key] for key in keys))
        if len(keys) > 1:  # of one word an article beside it would go too
            most = [row.index(max(row)) for row in self.weights]
            while first - 1 in free and most[first - 1] in keys:
                first -= 1
            while last + 1 in free and most[last + 1] in keys:
                last += 1
        return self.targets[first][0], self.targets[last][1]

    def spliced(self, start: int, end: int, term: Wanted) -> Attended:
        """Return the translation with a term's in place of a part of it, which has whole words."""
        space = " " * (start == end and self.text[start - 1 : start].isalnum())
        begin, longer = start + len(space), len(space) + len(term.translation) - (end - start)
        row = [float(key in self._keys(term)) for key in range(len(self.sources))]
        text = f"{self.text[:start]}{space}{term.translation}{self.text[end:]}"
        kept = [n for n, span in enumerate(self.targets) if span[0] < start or span[0] >= end]
        places = [self.targets[n] for n in kept]
        places = [(a, b) if a < start else (a + longer, b + longer) for a, b in places]
        before = sum(span[0] < start for span in places)
        places.insert(before, (begin, begin + len(term.translation)))
        weights = [self.weights[n] for n in kept]
        return Attended(text, self.sources, places, [*weights[:before], row, *weights[before:]])

    def _keys(self, term: Wanted) -> list[int]:
        return [n for n, (a, b) in enumerate(self.sources) if a < term.end and b > term.start]


def word_pairs(pair: Pair) -> list[tuple[int, int]]:
    """Return the numbers of words, from 0, of the source and of the translation that reads them."""
    sources, targets = (list(SPACED.finditer(text)) for text in (pair.source, pair.text))
    found = set()
    for j, target in enumerate(targets):
        words = [word for word in pair.words if target.start() <= word.start < target.end()]
        with_letters = [word for word in words if pair.text[word.start].isalnum()]
        for word in with_letters or words:
            ends = (source.end() for source in sources)
            found.add((sum(end <= word.source for end in ends), j))
    return sorted(found)


def _words(text: str, pieces: Sequence[str]) -> list[tuple[Span, list[int]]]:
    """Return the place of each word of a text, and the numbers of its pieces."""
    ends = list(accumulate(map(len, pieces)))
    words = []
    for found in WORD.finditer(text):
        start, stop = found.span()
        within = [
            number
            for number, (piece, end) in enumerate(zip(pieces, ends, strict=True))
            if start < end <= len(text) and end - len(piece) < stop
        ]
        words.append(((start, stop), within))
    return words
