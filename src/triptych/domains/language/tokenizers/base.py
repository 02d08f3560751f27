"""Text to ids and back.

Ids 0 to 4 are padding, [CLS], [SEP], [MASK] and [UNK]. No text encodes to the first four, so a
sentence may contain the characters "[MASK]". [UNK] is a token of the text like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tokenizers import Tokenizer

SPECIALS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
"""Names of the ids that no text encodes to."""
PAD, CLS, SEP, MASK, UNK = range(5)
N_SPECIALS = len(SPECIALS)
"""Ids from here on are tokens of the text; the first one is [UNK]."""
UNKNOWN = "[UNK]"
"""Name of the token for every word that the vocabulary cannot write."""


@dataclass(frozen=True)
class TokenizerConfig(ABC):
    """Kind of tokenizer."""

    min_size: ClassVar[int] = N_SPECIALS + 2
    """Smallest vocabulary in tokens, the special ids included."""

    @abstractmethod
    def build(self, lines: Iterable[str], vocabulary_size: int) -> TextTokenizer:
        """Learn a tokenizer from lines of text.

        vocabulary_size: maximum number of ids, special ids included; a small text gives fewer.
        """


class TextTokenizer:
    """Text to ids and back. tokenizer: its first symbols are `SPECIALS` and [UNK], in this order.

    The special ids are symbols of the vocabulary and no added tokens of the library, which would
    read the characters "[MASK]" of a text as the mask.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def from_json(cls, text: str) -> TextTokenizer:
        """Return the tokenizer that `to_json` serialized."""
        return cls(Tokenizer.from_str(text))

    def to_json(self) -> str:
        """Return the whole tokenizer as one string, for the checkpoint."""
        return self._tokenizer.to_str()

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    @property
    def symbols(self) -> list[str]:
        """Name of each id."""
        pieces = self._tokenizer.get_vocab()
        return sorted(pieces, key=pieces.__getitem__)

    @property
    def words(self) -> list[str | None]:
        """Return for each id its word; None for special ids and for pieces that continue a word."""
        continues = getattr(self._tokenizer.model, "continuing_subword_prefix", None) or "\0"
        return [
            None if name in (*SPECIALS, UNKNOWN) or name.startswith(continues) else name
            for name in self.symbols
        ]

    def encode(self, line: str) -> list[int]:
        """Return the ids of one line, without special ids."""
        return self.encode_batch([line])[0]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without special ids."""
        encodings = self._tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of one row of ids."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each row of ids, without special ids."""
        kept = [[int(token) for token in row if token >= N_SPECIALS] for row in rows]
        return self._tokenizer.decode_batch(kept, skip_special_tokens=False)
