"""Strings of digits: to copy, to reverse, or to add two numbers.

Writes the folders copy, reverse and addition (Dehghani et al. 2018, section 3.3), each with a file
SPLIT.tsv with the columns `source` and `target` for train, validation, test and test-N, whose
strings have N digits. A source of n digits is `0735` for copy and reverse, and `0735+0628` for
addition; a sum has a place for the carry before its n digits, here `01363`. The digits and, except
in test-N, the lengths are uniform; short strings occur in several splits. Drawn from a seed: no
licence applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from triptych.types import Checked, PositiveInt, Seed

from ._draws import uniform_draws

HEADER = ("source", "target")


@dataclass(frozen=True)
class Options(Checked):
    """Lengths of the strings and sizes of the splits."""

    min_digits: PositiveInt = 1
    """Fewest digits of a string, or of a number to add."""
    max_digits: PositiveInt = 10
    """Most digits of a string, or of a number to add."""
    test_digits: tuple[PositiveInt, ...] = (10, 12, 15, 20, 40)
    """Lengths N of the splits test-N, in digits."""
    train_size: PositiveInt = 50_000
    """Number of training pairs."""
    validation_size: PositiveInt = 200
    """Number of validation pairs."""
    test_size: PositiveInt = 100
    """Number of pairs of each test split."""
    seed: Seed = 0
    """Seed of the draws."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_digits < self.min_digits:
            raise ValueError(
                f"max_digits is {self.max_digits}; expected at least min_digits {self.min_digits}"
            )


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
    """Yield the files."""
    splits = {
        split: (getattr(options, f"{split}_size"), options.min_digits, options.max_digits)
        for split in ("train", "validation", "test")
    }
    splits |= {f"test-{n}": (options.test_size, n, n) for n in options.test_digits}
    for split, sizes in splits.items():
        single = [first for (first,) in strings(options.seed, split, 1, *sizes)]
        double = strings(options.seed, split, 2, *sizes)
        pairs = {
            "copy": [(text, text) for text in single],
            "reverse": [(text, text[::-1]) for text in single],
            "addition": [(f"{a}+{b}", f"{int(a) + int(b):0{len(a) + 1}}") for a, b in double],
        }
        for task, rows in pairs.items():
            yield f"{task}/{split}.tsv", [HEADER, *rows]


def strings(
    seed: int, split: str, n_strings: int, size: int, low: int, high: int
) -> list[list[str]]:
    """Return `size` examples of n_strings strings of the same length, from low to high digits."""
    uniform = uniform_draws(seed, split, (size, 1 + n_strings * high))
    lengths = low + (uniform[:, 0] * (high - low + 1)).astype(np.int64)  # [N]
    digits = (uniform[:, 1:] * 10).astype(np.int64).reshape(size, n_strings, high)
    return [
        ["".join(map(str, string[:length])) for string in example]
        for example, length in zip(digits, lengths, strict=True)
    ]
