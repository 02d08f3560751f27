"""Phrase pairs of the sentence pairs of a config, as additional training pairs of a small corpus.

A model sees a word inside sentences only, and a rare one too seldom to translate it alone. Word
alignments of the training pairs give pairs of words and short phrases (Koehn, Och and Marcu 2003,
"Statistical phrase-based translation"). Nothing but the training pairs is read.

Writes phrases.tsv, compounds.tsv and unmarked.tsv with the columns `source` and `target`: phrase
pairs, the most frequent first; pairs of two random phrase pairs each, for scripts without spaces;
and short sentence pairs without their last marks. The licences of the corpora apply.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych.domains.translation.model import SPECIALS
from triptych.domains.translation.sources import Pair
from triptych.text.byte_level import BytePairs
from triptych.text.tokenizer import IDEOGRAM
from triptych.types import Checked, NonNegativeInt, PositiveInt

from ._pairs import HEADER, corpus_of, key, keys_of

Rows = Sequence[Sequence[int]]
"""Unit ids of each sentence."""
Span = tuple[int, int]
"""First and last position of a phrase."""
Links = set[tuple[int, int]]
"""Aligned positions of a sentence pair: (source, target)."""

UNITS = 16_000
"""Vocabulary of byte pairs into which source sentences are divided, in tokens: such units need no
spaces between words."""
LONGEST = 3
"""Maximum length of a phrase on either side, in units."""
MIN_SHARE = 0.1
"""Least share of the occurrences of a source phrase that have the target phrase of a pair."""
ITERATIONS = 6
"""Steps of expectation maximisation."""
UNIT = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")
"""Units of the target language: words and punctuation marks."""
PHRASE = re.compile(r"[\w' -]+")
"""Texts of which phrases are made: without punctuation marks."""
HAN_AND_KANA = re.compile(f"[{IDEOGRAM}]+")
"""Texts in scripts that put no spaces between words: Chinese characters, hiragana, katakana."""

SHORT = 14
"""Maximum length of a source without its last mark, in characters."""
MARKS = ".。!！?？"
"""Marks at the end of a sentence."""


@dataclass(frozen=True)
class Options(Checked):
    """The sentence pairs, and how many phrases are made of them."""

    config: str = "ko-zh-en"
    """Settings file, or name of a shipped one, whose data.source has the training pairs."""
    directory: str | None = None
    """Folder of the source's files; null for the one of the config."""
    min_count: PositiveInt = 2
    """Number of training pairs in which a phrase pair must be found."""
    compounds: NonNegativeInt = 12_000
    """Number of compounds."""
    exclude: tuple[str, ...] = ()
    """Text files of which no line may be a phrase, in lower case without punctuation."""


def main(options: Options) -> Iterator[tuple[str, Iterable[Pair]]]:
    """Yield the files."""
    source, excluded = corpus_of(options.config, options.directory), keys_of(options.exclude)
    pairs = [pair for pair in source.items("train") if pair[0] and pair[1]]

    def allowed(found: Iterable[Pair]) -> list[Pair]:
        return [pair for pair in found if not excluded & {*map(key, pair)}]

    phrases = allowed(phrase_pairs(pairs, options.min_count))
    yield "phrases.tsv", [HEADER, *phrases]
    yield "compounds.tsv", [HEADER, *compounds(phrases, options.compounds)]
    yield "unmarked.tsv", [HEADER, *allowed(unmarked(pairs))]


def phrase_pairs(pairs: Sequence[Pair], min_count: int) -> list[Pair]:
    """Return the phrase pairs that are found in at least `min_count` sentence pairs.

    The most frequent come first. Equal sentence pairs count once, letters in both cases are one
    target, in its most frequent spelling.
    """
    pairs = list(dict.fromkeys(pairs))
    sources = [source for source, _ in pairs]
    tokenizer = BytePairs().build(sources, UNITS, SPECIALS)
    pieces = tokenizer.token_bytes
    source_rows = tokenizer.encode_batch(sources)
    words = [UNIT.findall(target) for _, target in pairs]
    ids: dict[str, int] = {}
    target_rows = [[ids.setdefault(word.lower(), len(ids)) for word in row] for row in words]
    forward, backward = align(source_rows, target_rows), align(target_rows, source_rows)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for row, spelt, one, other in zip(source_rows, words, forward, backward, strict=True):
        found = set()
        links = symmetric(one, {(source, target) for target, source in other})
        for (first, last), (start, end) in consistent(links):
            # A unit may hold a part of a character, which becomes U+FFFD and is no phrase.
            text = b"".join(pieces[unit] for unit in row[first : last + 1]).decode(errors="replace")
            source, target = text.strip(), " ".join(spelt[start : end + 1])
            if PHRASE.fullmatch(source) and PHRASE.fullmatch(target):
                found.add((source, target))
        for source, target in found:
            counts[source][target.lower()] += 1
            spellings[target.lower()][target] += 1
    kept = [
        (count, source, spellings[target].most_common(1)[0][0])
        for source, targets in counts.items()
        for target, count in targets.items()
        if count >= max(min_count, MIN_SHARE * targets.total())
    ]
    return [(source, target) for _, source, target in sorted(kept, reverse=True)]


def compounds(phrases: Sequence[Pair], count: int) -> list[Pair]:
    """Return `count` pairs of two random phrase pairs each, as if they were a compound.

    Of those with one target word and a source in a script without spaces, in which a compound looks
    like a word. A model that has seen no compound of rare words tends to translate one of them only
    (concatenation as augmentation: Nguyen et al. 2021, arXiv 2105.01691). Fewer than two such
    phrases give no compounds. The draw is the same in every run.
    """
    words = [pair for pair in phrases if HAN_AND_KANA.fullmatch(pair[0]) and " " not in pair[1]]
    draw = random.Random(0)
    chosen = (draw.sample(words, 2) for _ in range(count if len(words) > 1 else 0))
    return [(first[0] + last[0], f"{first[1]} {last[1]}") for first, last in chosen]


def unmarked(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs of one short sentence each without their last marks, as people type."""
    for pair in pairs:
        source, target = (side.rstrip(MARKS) for side in pair)
        marks_left = any(mark in source + target for mark in MARKS)
        if source != pair[0] and 0 < len(source) <= SHORT and not marks_left:
            yield source, target


def align(sources: Rows, targets: Rows) -> list[Links]:
    """Return the most probable source position of each target position, sentence by sentence.

    IBM model 1 (Brown et al. 1993): the probability of a target unit is the mean of t(target unit |
    source unit) over the source positions of its sentence, with t from expectation maximisation.
    """
    sizes = [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    n_units = 1 + max((unit for row in targets for unit in row), default=0)
    keys = [
        np.asarray(source, dtype=np.int64) * n_units + np.asarray(target, dtype=np.int64)[:, None]
        for source, target in zip(sources, targets, strict=True)
    ]  # each [n_target, n_source]
    flat = np.concatenate([key.ravel() for key in keys])  # [P]
    n_sources = np.repeat([n for n, _ in sizes], [n for _, n in sizes])  # [target positions]
    position = np.repeat(np.arange(len(n_sources)), n_sources)  # [P]
    pairs, index = np.unique(flat, return_inverse=True)
    source_unit = pairs // n_units
    table: NDArray[np.float64] = np.ones(len(pairs))  # t, by pair of units
    for _ in range(ITERATIONS):
        posterior = table[index]
        posterior /= np.bincount(position, posterior)[position]
        table = np.bincount(index, posterior, len(pairs)).astype(np.float64)
        table /= np.bincount(source_unit, table)[source_unit]
    parts = np.split(table[index], np.cumsum([key.size for key in keys])[:-1])
    scores = [part.reshape(key.shape) for part, key in zip(parts, keys, strict=True)]
    best = [score.argmax(1).tolist() if score.size else [] for score in scores]
    return [set(zip(row, range(len(row)), strict=True)) for row in best]


def symmetric(forward: Links, backward: Links) -> Links:
    """Return the links of both directions, and their neighbours of one direction (grow-diag).

    A neighbour is added where its source or its target position has no link yet (Koehn, Och and
    Marcu 2003, section 3).
    """
    links, grown = forward & backward, True
    while grown:
        grown = False
        for source, target in sorted((forward | backward) - links):
            near = any(abs(source - s) <= 1 and abs(target - t) <= 1 for s, t in links)
            linked = any(source == s for s, _ in links) and any(target == t for _, t in links)
            if near and not linked:
                links = links | {(source, target)}
                grown = True
    return links


def consistent(links: Links) -> Iterator[tuple[Span, Span]]:
    """Yield the source and target spans, at most LONGEST long, with links to each other alone.

    The first and the last position of both spans have a link.
    """
    linked = sorted({source for source, _ in links})
    for first in linked:
        for last in linked:
            if not first <= last < first + LONGEST:
                continue
            targets = [target for source, target in links if first <= source <= last]
            start, end = min(targets), max(targets)
            sources = [source for source, target in links if start <= target <= end]
            if end - start < LONGEST and first <= min(sources) and max(sources) <= last:
                yield (first, last), (start, end)
