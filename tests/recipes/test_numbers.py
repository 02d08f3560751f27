"""Numbers in words: splits of different values, draws, the words of two languages."""

from __future__ import annotations

from typing import Any

import pytest

from triptych.tools import recipes

numbers = recipes.load("numbers")
Options, SPLITS, values = numbers.Options, numbers.SPLITS, numbers.values


def small(**settings: object) -> Any:
    return Options(
        **{"train_size": 60, "validation_size": 20, "test_size": 20, "high": 999, **settings}
    )


def test_values_are_held_out_and_drawn_without_replacement() -> None:
    options = small(train_size=900, validation_size=50, test_size=50)
    found = [values(options, split) for split in SPLITS]
    assert list(map(len, found)) == [900, 50, 50]
    every = [value for of_split in found for value in of_split]
    assert sorted(every) == list(range(1000))  # every value exactly once


def test_held_out_values_do_not_depend_on_the_amount_of_training() -> None:
    few, many = small(train_size=10), small(train_size=500)
    assert values(few, "test") == values(many, "test")
    assert values(few, "validation") == values(many, "validation")
    assert values(few, "test") != values(small(seed=1), "test")


def test_training_may_small_value_bias_values_and_the_test_does_not() -> None:
    def share_below_a_thousand(found: list[int]) -> float:
        return sum(value < 1_000 for value in found) / len(found)

    leaning, even = (
        Options(train_size=2_000, validation_size=1, high=99_999, small_value_bias=lean)
        for lean in (0.5, 0)
    )
    # Weights v^-0.5 put sqrt(1 / 100) of the draws there, weights of 1 put 1 / 100.
    assert share_below_a_thousand(values(leaning, "train")) == pytest.approx(0.10, abs=0.03)
    assert share_below_a_thousand(values(even, "train")) == pytest.approx(0.01, abs=0.007)
    assert values(leaning, "test") == values(even, "test")
    assert len(set(values(leaning, "train"))) == 2_000


def test_words_are_those_of_the_two_languages() -> None:
    words = {
        "en": "one thousand, two hundred and thirty-four",
        "de": "eintausendzweihundertvierunddreißig",
        "ko": "천이백삼십사",
    }
    for source, target in [("en", "de"), ("de", "ko"), ("ko", "en")]:
        options = Options(
            source_language=source,
            target_language=target,
            low=1234,
            high=1236,
            train_size=1,
            validation_size=1,
            test_size=1,
        )
        pairs = [pair for _, (_, *rows) in numbers.main(options) for pair in rows]
        assert len(pairs) == 3
        assert (words[source], words[target]) in pairs


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source_language": "fr"}, "source_language is fr .* two of en, de, ko"),
        ({"target_language": "en"}, "target_language is en; expected two of"),
        ({"low": 5, "high": 4}, "as many values from low 5 to high 4"),
        ({"high": 1_000_000}, "within 0 to 999,999"),
        ({"train_size": 961}, "add up to 1,001; .* low 0 to high 999"),
    ],
)
def test_impossible_number_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**settings)
