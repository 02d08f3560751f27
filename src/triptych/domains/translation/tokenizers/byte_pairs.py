"""Lossless byte-level byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from triptych.domains.translation.tokenizers.base import (
    N_SPECIALS,
    TextTokenizer,
    TokenizerConfig,
)

MIN_VOCABULARY = N_SPECIALS + 256
"""Smallest vocabulary: the special ids and every byte."""


@dataclass(frozen=True)
class BytePairs(TokenizerConfig):
    """Byte-level BPE: frequent words are one token, rare ones several; any text can be encoded."""

    lossless = True
    min_size = MIN_VOCABULARY

    def build(self, lines: Iterable[str], vocabulary_size: int) -> TextTokenizer:
        bpe = Tokenizer(models.BPE())
        # Splits before spaces and between letters, digits and punctuation, as GPT-2 does.
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        bpe.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary_size - N_SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        bpe.train_from_iterator(lines, trainer)
        return TextTokenizer(bpe)
