"""Numbers in words: a translation task that needs no download and whose answer is known."""

import heapq
import random
from dataclasses import dataclass
from importlib.util import find_spec

from triptych.domains.translation.corpora import Corpus, Pair
from triptych.errors import UserError

LANGUAGES = ("en", "de", "ko")
LARGEST = 999_999  # num2words was read through to here in all three languages


@dataclass(frozen=True)
class NumberWords(Corpus):
    """The same whole number in the words of two languages, held out by value.

    The held-out values depend on the range, their counts and the seed alone, so that runs with
    more or less training data are compared on the same numbers.
    """

    low: int = 0
    """Smallest value."""
    high: int = LARGEST
    """Largest value."""
    train: int = 20_000
    """Values to train on."""
    validation: int = 500
    """Held-out values that are scored while training."""
    test: int = 1_000
    """Held-out values for the end."""
    prefer_small: float = 0.6
    """How much training prefers small values: value v is drawn with weight (v + 1) to the power of
    minus this, so 0 draws all alike and few numbers are short; held-out values are drawn alike."""
    seed: int = 0
    """Seed of the draws without replacement."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("source_language", "target_language"):
            if getattr(self, name) not in LANGUAGES:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; numbers in words know "
                    f"{', '.join(LANGUAGES)}."
                )
        if self.source_language == self.target_language:
            raise ValueError(
                f"source_language and target_language are both "
                f"{self.source_language!r}; expected two languages."
            )
        if not 0 <= self.low <= self.high <= LARGEST:
            raise ValueError(
                f"low {self.low:,} and high {self.high:,} are not a range within 0 to {LARGEST:,}."
            )
        if min(self.train, self.validation, self.test) < 1:
            raise ValueError("train, validation and test must each be at least one value.")
        if self.prefer_small < 0:
            raise ValueError(f"prefer_small is {self.prefer_small}; expected 0 or more.")
        wanted, there = self.train + self.validation + self.test, self.high - self.low + 1
        if wanted > there:
            raise ValueError(
                f"train, validation and test ask for {wanted:,} values and there are {there:,} "
                f"from {self.low:,} to {self.high:,}."
            )

    def splits(self) -> list[str]:
        """Always train, validation and test."""
        return ["train", "validation", "test"]

    def check(self) -> None:
        """Raise UserError where num2words is not installed."""
        if find_spec("num2words") is None:
            raise UserError(
                "numbers in words need the package num2words: pip install 'triptych[demo]'."
            )

    def bleu_tokenizer(self) -> str:
        """By character: a German number is one word, and one word has no four-grams to count."""
        return "char"

    def values(self, split: str) -> list[int]:
        """The numbers of a split, in the order of `pairs`."""
        self.check_split(split)
        draw = random.Random(self.seed)
        every = range(self.low, self.high + 1)
        held_out = draw.sample(every, self.test + self.validation)
        if split != "train":
            return held_out[: self.test] if split == "test" else held_out[self.test :]
        taken = set(held_out)
        # Weighted, without replacement: the smallest of exponential waiting times, each with its
        # value's weight as rate (Efraimidis and Spirakis 2006).
        waiting = (
            (draw.expovariate(1.0) * (value + 1) ** self.prefer_small, value)
            for value in every
            if value not in taken
        )
        return [value for _, value in heapq.nsmallest(self.train, waiting)]

    def pairs(self, split: str) -> list[Pair]:
        """Both languages' words for each value of the split."""
        self.check()
        from num2words import num2words  # an extra: only who uses it needs it

        return [
            (
                num2words(value, lang=self.source_language),
                num2words(value, lang=self.target_language),
            )
            for value in self.values(split)
        ]
