"""Whole numbers in the words of two languages, for a translation that needs no download.

Writes train.tsv, validation.tsv and test.tsv with the columns `source` and `target`; the splits
hold different values. Those of validation and test depend on the range, their sizes and the seed
alone, so runs with different amounts of training data are compared on the same numbers. Computed:
no licence applies.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from triptych.errors import library
from triptych.types import Checked, NonNegativeFloat, PositiveInt, Seed

HEADER = ("source", "target")
LANGUAGES = ("en", "de", "ko")
"""Languages in which the output of num2words was checked for every value up to `MAX_VALUE`."""
MAX_VALUE = 999_999
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Options(Checked):
    """Languages, range and sizes."""

    source_language: str = "en"
    """Code of the source: en, de or ko."""
    target_language: str = "de"
    """Code of the target, another one of these."""
    low: int = 0
    """Smallest value."""
    high: int = MAX_VALUE
    """Largest value."""
    train_size: PositiveInt = 20_000
    """Number of training pairs."""
    validation_size: PositiveInt = 500
    """Number of validation pairs."""
    test_size: PositiveInt = 1_000
    """Number of test pairs."""
    small_value_bias: NonNegativeFloat = 0.6
    """Exponent a >= 0 of the training distribution: value v has the weight (v + 1)^-a. 0 is
    uniform, where few numbers are short; validation and test are always uniform."""
    seed: Seed = 0
    """Seed of the draws."""

    def __post_init__(self) -> None:
        super().__post_init__()
        languages = {self.source_language, self.target_language}
        if len(languages) != 2 or not languages <= set(LANGUAGES):
            raise ValueError(
                f"source_language is {self.source_language} and target_language is "
                f"{self.target_language}; expected two of {', '.join(LANGUAGES)}"
            )
        needed = self.train_size + self.validation_size + self.test_size
        if self.low < 0 or self.high > MAX_VALUE or self.high - self.low + 1 < needed:
            raise ValueError(
                f"train_size, validation_size and test_size add up to {needed:,}; expected at "
                f"least as many values from low {self.low:,} to high {self.high:,}, within 0 to "
                f"{MAX_VALUE:,}"
            )


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
    """Yield the files."""
    num2words = library("num2words", "the recipe numbers", "demo").num2words
    languages = (options.source_language, options.target_language)
    for split in SPLITS:
        words = [[num2words(v, lang=lang) for lang in languages] for v in values(options, split)]
        yield f"{split}.tsv", [HEADER, *((source, target) for source, target in words)]


def values(options: Options, split: str) -> list[int]:
    """Return the numbers of a split, in the order of its rows."""
    generator = random.Random(options.seed)
    every = range(options.low, options.high + 1)
    held_out = generator.sample(every, options.test_size + options.validation_size)
    if split != "train":
        test, validation = held_out[: options.test_size], held_out[options.test_size :]
        return test if split == "test" else validation
    excluded = set(held_out)
    # Weighted sampling without replacement: the values with the smallest exponential variables of
    # rate weight(v) (Efraimidis and Spirakis 2006).
    keys = (
        (generator.expovariate(1.0) * (value + 1) ** options.small_value_bias, value)
        for value in every
        if value not in excluded
    )
    return [value for _, value in heapq.nsmallest(options.train_size, keys)]
