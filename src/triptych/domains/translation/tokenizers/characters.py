"""Characters as tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from triptych.domains.translation.tokenizers.base import (
    N_SPECIALS,
    TextTokenizer,
    TokenizerConfig,
    whole_units,
)


@dataclass(frozen=True)
class Characters(TokenizerConfig):
    """One token for each Unicode character; those not in the training text are <unk>."""

    lossless = False
    min_size = N_SPECIALS + 2

    def build(self, lines: Iterable[str], vocabulary_size: int) -> TextTokenizer:
        each = Split(Regex(r"[\s\S]"), "isolated")
        split = Sequence([each, ByteLevel(add_prefix_space=False, use_regex=False)])
        return whole_units(split, lines, vocabulary_size)
