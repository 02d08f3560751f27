"""Strings of digits: what the tasks ask for, lengths of the splits, the score by character."""

from __future__ import annotations

from collections import Counter

import pytest

from triptych.domains.translation.digit_strings import DigitStrings
from triptych.errors import UserError


def corpus(**settings: object) -> DigitStrings:
    return DigitStrings(
        **({"train_size": 2_000, "validation_size": 50, "test_size": 50} | settings)
    )


def test_targets_are_copies_reversals_and_sums() -> None:
    for source, target in corpus(task="copy").pairs("train"):
        assert source.isdigit()
        assert target == source
    for source, target in corpus(task="reverse").pairs("train"):
        assert target == source[::-1]
    for source, target in corpus(task="addition").pairs("train"):
        first, second = source.split("+")
        assert int(first) + int(second) == int(target)
        assert len(first) == len(second) == len(target) - 1


def test_lengths_and_digits_are_uniform() -> None:
    sources = [source for source, _ in corpus(min_digits=3, max_digits=6).pairs("train")]
    lengths = Counter(map(len, sources))
    assert set(lengths) == {3, 4, 5, 6}
    assert all(abs(count / 2_000 - 0.25) < 0.05 for count in lengths.values())
    digits = Counter("".join(sources))
    total = sum(digits.values())
    assert all(abs(digits[digit] / total - 0.1) < 0.02 for digit in "0123456789")


@pytest.mark.parametrize("task", ["copy", "addition"])
def test_a_split_of_a_length_has_this_length_alone(task: str) -> None:
    source = corpus(task=task, test_digits=(7, 23))
    assert source.splits() == ["train", "validation", "test", "test-7", "test-23"]
    for digits in (7, 23):
        pairs = source.pairs(f"test-{digits}")
        assert len(pairs) == 50
        assert {len(first.split("+")[0]) for first, _ in pairs} == {digits}
    with pytest.raises(UserError, match="test-7"):
        source.pairs("test-8")


def test_splits_are_the_same_every_time_and_differ() -> None:
    first, again = corpus(min_digits=9), corpus(min_digits=9)
    seen = [first.pairs(split) for split in first.splits()]
    assert seen == [again.pairs(split) for split in again.splits()]
    assert not set(seen[0]) & set(seen[1])
    assert corpus(min_digits=9, seed=1).pairs("test") != first.pairs("test")


def test_character_accuracy_counts_the_characters_in_their_places() -> None:
    score = corpus().extra_scores(["1234", "12", "", "99"], ["1235", "1234", "7", "9"])
    assert score == {"character_accuracy": (3 + 2 + 0 + 1) / 10}


@pytest.mark.parametrize(
    "wrong", [{"min_digits": 0}, {"max_digits": 0}, {"test_digits": (5, 0)}], ids=str
)
def test_impossible_lengths_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        corpus(**wrong)
