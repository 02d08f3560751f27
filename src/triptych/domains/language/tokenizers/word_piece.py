"""WordPiece (Schuster and Nakajima 2012), the tokenizer of BERT."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from triptych.domains.language.tokenizers.base import (
    SPECIALS,
    UNKNOWN,
    TextTokenizer,
    TokenizerConfig,
)

CONTINUES = "##"
"""Prefix of a piece that continues a word."""


@dataclass(frozen=True)
class WordPiece(TokenizerConfig):
    """Frequent words are one token, rare ones several; a word with unknown letters is [UNK].

    Text is split at spaces and around punctuation and Chinese characters, as by BERT, so that
    decoding gives the words back and not the number of spaces.
    """

    lowercase: bool = True
    """Whether capital letters and accents are removed."""

    def build(self, lines: Iterable[str], vocabulary_size: int) -> TextTokenizer:
        lines = list(lines)
        # The library numbers letters that continue a word in a random order, which also decides
        # between equally frequent pieces; named beforehand, they keep their order.
        letters = [name for name in self._learn(lines, 0, []) if name.startswith(CONTINUES)]
        ids = self._learn(lines, vocabulary_size, sorted(letters))
        return TextTokenizer(self._tokenizer(models.WordPiece(ids, unk_token=UNKNOWN)))

    def _learn(self, lines: list[str], vocabulary_size: int, first: list[str]) -> dict[str, int]:
        """Return the ids of the pieces; the first ones are the special ids and those of `first`."""
        learner = self._tokenizer(models.WordPiece(unk_token=UNKNOWN))
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocabulary_size,
            special_tokens=[*SPECIALS, UNKNOWN, *first],
            continuing_subword_prefix=CONTINUES,
            show_progress=False,
        )
        learner.train_from_iterator(lines, trainer)
        return learner.get_vocab()

    def _tokenizer(self, model: models.Model) -> Tokenizer:
        tokenizer = Tokenizer(model)
        # Accents are removed from decomposed letters; NFC puts those of Korean together again.
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.BertNormalizer(lowercase=self.lowercase), normalizers.NFC()]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix=CONTINUES, cleanup=True)
        return tokenizer
