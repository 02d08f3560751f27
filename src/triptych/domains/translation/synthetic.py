"""Synthetic corpora: numbers in words, and reversed sentences of known entropy."""

import heapq
import random
import string
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from triptych.domains.synthetic import NoisyCopy, SyntheticSource, uniform_draws
from triptych.domains.translation.sources import Corpus, Pair
from triptych.errors import UserError, library
from triptych.types import NonNegativeFloat, OpenUnitInterval, PositiveInt, Seed

LANGUAGES = ("en", "de", "ko")
"""Languages in which the output of num2words was checked for every value up to `MAX_VALUE`."""
MAX_VALUE = 999_999
LETTERS = np.array(list(string.ascii_lowercase))


@dataclass(frozen=True)
class SyntheticCorpus(Corpus):
    """Corpus that is computed from a seed, with the splits train, validation and test."""

    train_size: PositiveInt = 20_000
    """Number of training pairs."""
    validation_size: PositiveInt = 500
    """Number of validation pairs."""
    test_size: PositiveInt = 1_000
    """Number of test pairs."""
    seed: Seed = 0
    """Seed of the draws."""

    def splits(self) -> list[str]:
        return ["train", "validation", "test"]

    def example(self) -> str:
        """Return a source of the validation split; "" where it cannot be computed."""
        with suppress(UserError):
            return replace(self, validation_size=1).items("validation")[0][0]
        return ""


@dataclass(frozen=True)
class NumberWords(SyntheticCorpus):
    """Whole numbers in the words of two languages; the splits hold different values.

    The values of validation and test depend on the range, their sizes and the seed alone, so runs
    with different amounts of training data are compared on the same numbers.
    """

    low: int = 0
    """Smallest value."""
    high: int = MAX_VALUE
    """Largest value."""
    small_value_bias: NonNegativeFloat = 0.6
    """Exponent a >= 0 of the training distribution: value v has the weight (v + 1)^-a. 0 is
    uniform, where few numbers are short; validation and test are always uniform."""

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

    def bleu_tokenizer(self) -> str:
        """Return "char": a German number is one word, which has no four-gram of words."""
        return "char"

    def values(self, split: str) -> list[int]:
        """Return the numbers of a split, in the order of `pairs`."""
        generator = random.Random(self.seed)
        values = range(self.low, self.high + 1)
        held_out = generator.sample(values, self.test_size + self.validation_size)
        if split != "train":
            return held_out[: self.test_size] if split == "test" else held_out[self.test_size :]
        excluded = set(held_out)
        # Weighted sampling without replacement: the values with the smallest exponential variables
        # of rate weight(v) (Efraimidis and Spirakis 2006).
        keys = (
            (generator.expovariate(1.0) * (value + 1) ** self.small_value_bias, value)
            for value in values
            if value not in excluded
        )
        return [value for _, value in heapq.nsmallest(self.train_size, keys)]

    def read(self, split: str) -> list[Pair]:
        num2words = library("num2words", "the source NumberWords", "demo").num2words
        languages = (self.source_language, self.target_language)
        words = [[num2words(v, lang=lang) for lang in languages] for v in self.values(split)]
        return [(source, target) for source, target in words]


@dataclass(frozen=True)
class ReversedSentences(SyntheticCorpus, SyntheticSource):
    """Random words as source, the same words in reverse with random substitutions as target.

    The length of a source is uniform from `min_words` to `max_words`, and each word is uniform over
    the n_words types. Each word of the reversed target is a `NoisyCopy`, with h nats. Given its
    source, a target of n words has n h nats and n + 1 tokens: words are single letters between
    spaces, and byte-pair encoding never merges across a space, so each word is one token (with its
    space, if the training split holds both together). The source gives the length, so that the end
    token has probability 1. Averaged over sentences of mean length n, a token has n h / (n + 1)
    nats.
    """

    source_language: str = "art"
    """Language code of the source; art is the ISO 639 code for artificial languages."""
    target_language: str = "art"
    train_size: PositiveInt = 40_000
    n_words: int = 16
    """Number of word types, 2 to 26."""
    min_words: PositiveInt = 4
    """Fewest words in a sentence."""
    max_words: int = 10
    """Most words in a sentence."""
    change: OpenUnitInterval = 0.1
    """Probability that a target word is replaced, above 0 and below 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.n_words <= len(LETTERS):
            raise ValueError(f"n_words is {self.n_words}; expected 2 to {len(LETTERS)} letters")
        if self.min_words > self.max_words:
            raise ValueError(
                f"min_words is {self.min_words} and max_words is {self.max_words}; expected at "
                "least min_words"
            )

    @property
    def noisy_copy(self) -> NoisyCopy:
        """Distribution of a target word given its source word."""
        return NoisyCopy(self.n_words, self.change)

    def read(self, split: str) -> list[Pair]:
        size = getattr(self, f"{split}_size")
        uniform = uniform_draws(self.seed, split, (size, 1 + 2 * self.max_words))
        n_lengths = self.max_words - self.min_words + 1
        lengths = self.min_words + (uniform[:, 0] * n_lengths).astype(np.int64)  # [N]
        sources = (uniform[:, 1 : self.max_words + 1] * self.n_words).astype(np.int64)  # [N, max]
        noise = uniform[:, self.max_words + 1 :]  # [N, max]
        found = []
        for row, length in enumerate(lengths):
            source = sources[row, :length]  # [n]
            target = self.noisy_copy.apply(source[::-1], noise[row, :length])  # [n]
            found.append((" ".join(LETTERS[source]), " ".join(LETTERS[target])))
        return found

    def entropy(self) -> float:
        length = (self.min_words + self.max_words) / 2
        return length * self.noisy_copy.entropy() / (length + 1)
