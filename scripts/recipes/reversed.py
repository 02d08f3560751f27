"""Random words, and the same words in reverse with random substitutions: text of known entropy.

Writes train.tsv, validation.tsv and test.tsv with the columns `source` and `target`, and
entropy.txt with the entropy of a token of the target in nats. No model has a lower expected score,
unless it saw the targets.

The length of a source is uniform from min_words to max_words, and each word is uniform over the
n_words types. Each word of the reversed target is a noisy copy, with h nats. Given its source, a
target of n words has n h nats and n + 1 tokens: words are single letters between spaces, and
byte-pair encoding never merges across a space, so each word is one token (with its space, if the
training split holds both together). The source gives the length, so that the end token has
probability 1. Averaged over sentences of mean length n, a token has n h / (n + 1) nats.
Drawn from a seed: no licence applies.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from triptych.types import Checked, OpenUnitInterval, PositiveInt, Seed

from ._draws import NoisyCopy, uniform_draws

HEADER = ("source", "target")
LETTERS = np.array(list(string.ascii_lowercase))
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Options(Checked):
    """The distribution, and how much is drawn."""

    n_words: int = 16
    """Number of word types, 2 to 26."""
    min_words: PositiveInt = 4
    """Fewest words in a sentence."""
    max_words: int = 10
    """Most words in a sentence."""
    change: OpenUnitInterval = 0.1
    """Probability that a target word is replaced, above 0 and below 1."""
    train_size: PositiveInt = 40_000
    """Number of training pairs."""
    validation_size: PositiveInt = 500
    """Number of validation pairs."""
    test_size: PositiveInt = 1_000
    """Number of test pairs."""
    seed: Seed = 0
    """Seed of the draws."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.n_words <= len(LETTERS):
            raise ValueError(f"n_words is {self.n_words}; expected 2 to {len(LETTERS)} letters")
        if self.min_words > self.max_words:
            raise ValueError(
                f"min_words is {self.min_words} and max_words is {self.max_words}; expected at "
                "least min_words"
            )


def main(options: Options) -> Iterator[tuple[str, Iterable[str | tuple[str, str]]]]:
    """Yield the files."""
    for split in SPLITS:
        yield f"{split}.tsv", [HEADER, *pairs(options, split)]
    yield "entropy.txt", [f"{entropy(options):.6f}"]


def pairs(options: Options, split: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a split."""
    size, most = getattr(options, f"{split}_size"), options.max_words
    uniform = uniform_draws(options.seed, split, (size, 1 + 2 * most))
    n_lengths = most - options.min_words + 1
    lengths = options.min_words + (uniform[:, 0] * n_lengths).astype(np.int64)  # [N]
    sources = (uniform[:, 1 : most + 1] * options.n_words).astype(np.int64)  # [N, max]
    noise, copy = uniform[:, most + 1 :], NoisyCopy(options.n_words, options.change)  # [N, max]
    for row, length in enumerate(lengths):
        source = sources[row, :length]  # [n]
        target = copy.apply(source[::-1], noise[row, :length])  # [n]
        yield " ".join(LETTERS[source]), " ".join(LETTERS[target])


def entropy(options: Options) -> float:
    """Return the entropy of a token of the target in nats."""
    length = (options.min_words + options.max_words) / 2
    return length * NoisyCopy(options.n_words, options.change).entropy() / (length + 1)
