"""Algorithmic tasks on strings of digits, with test splits of longer strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from triptych.domains.synthetic import uniform_draws
from triptych.domains.translation.sources import Pair
from triptych.domains.translation.synthetic import SyntheticCorpus
from triptych.types import PositiveInt

LONGER = "test-"
"""Beginning of the name of a split of one length."""


@dataclass(frozen=True)
class DigitStrings(SyntheticCorpus):
    """A string of decimal digits and its copy, its reverse, or the sum of its two numbers.

    The tasks of Dehghani et al. 2018, section 3.3. A source of n digits is `0735` for copy and
    reverse, and `0735+0628` for addition; a sum has a place for the carry before its n digits,
    here `01363`. In train, validation and test the length is uniform from min_digits to max_digits;
    the split `test-N` has N digits in every string. Short strings occur in several splits.
    """

    source_language: str = "art"
    """Language code of the source; art is the ISO 639 code for artificial languages."""
    target_language: str = "art"
    """Language code of the target."""
    train_size: PositiveInt = 50_000
    """Number of training pairs."""
    test_size: PositiveInt = 500
    """Number of pairs of each test split."""
    task: Literal["copy", "reverse", "addition"] = "copy"
    """Target: the source itself, the source from its end on, or the sum of two numbers."""
    min_digits: PositiveInt = 1
    """Fewest digits of a string, or of a number to add."""
    max_digits: int = 10
    """Most digits of a string, or of a number to add."""
    test_digits: tuple[PositiveInt, ...] = (10, 12, 15, 20, 40)
    """Lengths N of the splits test-N, in digits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_digits < self.min_digits:
            raise ValueError(
                f"max_digits is {self.max_digits}; expected at least min_digits {self.min_digits}"
            )

    def splits(self) -> list[str]:
        return [*super().splits(), *(f"{LONGER}{digits}" for digits in self.test_digits)]

    def bleu_tokenizer(self) -> str:
        """Return "char": a string of digits is one word."""
        return "char"

    def extra_scores(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> dict[str, float]:
        """Return the share of the references' characters that stand in their place."""
        pairs = list(zip(hypotheses, references, strict=True))
        equal = sum(h == r for one, other in pairs for h, r in zip(one, other, strict=False))
        return {"character_accuracy": equal / sum(map(len, references))}

    def read(self, split: str) -> list[Pair]:
        """Return the pairs of a split, the same at every call."""
        longer = split.startswith(LONGER)
        low, high = (
            [int(split.removeprefix(LONGER))] * 2 if longer else (self.min_digits, self.max_digits)
        )
        size = self.test_size if longer else getattr(self, f"{split}_size")
        n_strings = 2 if self.task == "addition" else 1
        uniform = uniform_draws(self.seed, split, (size, 1 + n_strings * high))
        lengths = low + (uniform[:, 0] * (high - low + 1)).astype(np.int64)  # [N]
        digits = (uniform[:, 1:] * 10).astype(np.int64).reshape(size, n_strings, high)
        return [
            self._pair(["".join(map(str, string[:length])) for string in strings])
            for strings, length in zip(digits, lengths, strict=True)
        ]

    def _pair(self, strings: list[str]) -> Pair:
        """Return source and target of the strings of one example."""
        if self.task == "addition":
            total = sum(map(int, strings))
            return "+".join(strings), f"{total:0{len(strings[0]) + 1}}"
        return strings[0], strings[0] if self.task == "copy" else strings[0][::-1]
