"""Reversed sentences: their law, its entropy, words that are one token each."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest

from triptych.domains.translation.model import Tokenizers
from triptych.text.byte_level import BytePairs
from triptych.tools import recipes

made = recipes.load("reversed")
Options = made.Options


TINY = Options(
    n_words=3,
    min_words=2,
    max_words=4,
    change=0.2,
    train_size=60,
    validation_size=60,
    test_size=5,
    seed=3,
)


def probability(source: list[str], target: list[str], law: Any) -> float:
    """Of the target and its end given the source, by the sentence in the docstring."""
    if len(source) != len(target):
        return 0.0
    found = 1.0
    for place, word in enumerate(target):
        same = word == source[len(source) - 1 - place]
        found *= 1 - law.change if same else law.change / (law.n_words - 1)
    return found


def test_entropy_is_that_of_all_targets() -> None:
    nats = tokens = 0.0
    for length in (2, 3, 4):  # each as likely
        source = ["a", "b", "c", "a"][:length]
        every = [
            probability(source, list(t), TINY) for t in itertools.product("abc", repeat=length)
        ]
        assert sum(every) == pytest.approx(1)
        nats -= sum(p * math.log(p) for p in every) / 3
        tokens += (length + 1) / 3
    assert made.entropy(TINY) == pytest.approx(nats / tokens, rel=1e-12)


def test_the_draw_follows_the_law() -> None:
    options = Options(n_words=4, min_words=3, max_words=5, change=0.25, train_size=6000)
    pairs = [(source.split(), target.split()) for source, target in made.pairs(options, "train")]

    def close(counts: Counter[Any], shares: dict[Any, float]) -> bool:
        total = sum(counts.values())
        assert set(counts) <= set(shares)
        return all(
            abs(counts[key] / total - share) < 4 * math.sqrt(share * (1 - share) / total)
            for key, share in shares.items()
        )

    assert close(Counter(len(source) for source, _ in pairs), dict.fromkeys((3, 4, 5), 1 / 3))
    assert close(Counter(w for source, _ in pairs for w in source), dict.fromkeys("abcd", 0.25))
    steps = Counter(
        (ord(said) - ord(word)) % 4
        for source, target in pairs
        for word, said in zip(reversed(source), target, strict=True)
    )
    assert close(steps, {0: 0.75, 1: 0.25 / 3, 2: 0.25 / 3, 3: 0.25 / 3})


def test_every_word_is_one_token() -> None:
    pairs = list(made.pairs(TINY, "train"))
    sides = zip(*pairs, strict=True)
    tokenizers = Tokenizers.train(*sides, kind=BytePairs(), vocabulary_size=300, shared=True)
    for split in made.SPLITS:
        for source, target in made.pairs(TINY, split):
            assert len(tokenizers.source.encode(source)) == len(source.split())
            assert len(tokenizers.target.encode(target)) == len(target.split())


def test_the_splits_are_the_same_every_time_and_differ() -> None:
    options = Options(min_words=8, train_size=300, validation_size=200, test_size=200)
    found = {split: list(made.pairs(options, split)) for split in made.SPLITS}
    assert [len(set(rows)) for rows in found.values()] == [300, 200, 200]
    assert len({row for rows in found.values() for row in rows}) == 700
    more = Options(min_words=8, train_size=500, validation_size=200, test_size=200)
    assert list(made.pairs(more, "train"))[:300] == found["train"]
    assert list(made.pairs(more, "test")) == found["test"]
    other = Options(min_words=8, train_size=1, validation_size=1, test_size=200, seed=1)
    assert list(made.pairs(other, "test")) != found["test"]
    files = dict(made.main(options))
    assert files["test.tsv"] == [made.HEADER, *found["test"]]
    assert float(files["entropy.txt"][0]) == pytest.approx(made.entropy(options), abs=1e-6)


def test_the_entropy_in_the_tables_is_that_of_the_recipe() -> None:
    assert made.entropy(Options()) == pytest.approx(0.5214, abs=5e-5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n_words": 1}, "2 to 26"),
        ({"min_words": 11}, "at least min_words"),
    ],
)
def test_impossible_sentence_settings_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Options(**wrong)
    assert len(list(made.pairs(Options(n_words=2, min_words=10), "test"))) == 1000
