"""Vocabulary of a run: the tokenizer of its text, and the labels of a task that has labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triptych.text.tokenizer import TextTokenizer

CLS, SEP, MASK = 1, 2, 3
SPECIALS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
"""Names of the special ids; [UNK] is a token of the text like any other."""
N_SPECIALS = len(SPECIALS)


@dataclass(frozen=True)
class Vocabulary:
    """Tokenizer and labels; saved in every checkpoint."""

    tokenizer: TextTokenizer
    labels: tuple[str, ...] = ()
    """Names of the classes that the task predicts, by number."""

    def __len__(self) -> int:
        """Number of tokens, special ids included."""
        return len(self.tokenizer)

    @property
    def known(self) -> range:
        """Ids of text but the unknown token."""
        return range(self.tokenizer.n_reserved, len(self.tokenizer))

    def to_plain(self) -> dict[str, Any]:
        """Return JSON types for the checkpoint."""
        return {"tokenizer": self.tokenizer.to_json(), "labels": list(self.labels)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Vocabulary:
        """Return the vocabulary that `to_plain` serialized."""
        tokenizer = TextTokenizer.from_json(plain["tokenizer"], SPECIALS)
        return cls(tokenizer, tuple(plain["labels"]))
