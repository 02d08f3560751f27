"""Words as tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers.pre_tokenizers import ByteLevel

from triptych.domains.translation.tokenizers.base import (
    N_SPECIALS,
    TextTokenizer,
    TokenizerConfig,
    whole_units,
)
from triptych.types import PositiveInt


@dataclass(frozen=True)
class Words(TokenizerConfig):
    """One token for each word with the space before it, number and run of punctuation.

    The most frequent ones are the vocabulary; all others are <unk>.
    """

    min_count: PositiveInt = 2
    """Occurrences in the training text from which a word is in the vocabulary. With 1 and a large
    vocabulary no training sentence has <unk>, and the model learns nothing about it."""

    lossless = False
    min_size = N_SPECIALS + 2

    def build(self, lines: Iterable[str], vocabulary_size: int) -> TextTokenizer:
        split = ByteLevel(add_prefix_space=False, use_regex=True)
        return whole_units(split, lines, vocabulary_size, min_count=self.min_count)
