"""Lossless byte-level byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909).

Merges are learnt over bytes from the training split alone, without a normalizer: decoding returns
every string exactly, in any script. Ids 0, 1 and 2 are padding, start and end; no text encodes to
them, so a sentence may contain the characters "<end>".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PAD, START, END = 0, 1, 2
N_SPECIALS = 3
MIN_VOCABULARY = N_SPECIALS + 256
"""Smallest vocabulary: the special ids and every byte."""


class BytePairTokenizer:
    """Text to ids and back; ids 0, 1 and 2 are padding, start and end."""

    def __init__(self, bpe: Tokenizer) -> None:
        self._bpe = bpe

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int) -> BytePairTokenizer:
        """Learn the merges from lines of text.

        vocabulary_size: number of ids, special ids and the 256 bytes included; a small text gives
        fewer.
        """
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
        return cls(bpe)

    @classmethod
    def from_json(cls, text: str) -> BytePairTokenizer:
        """Return the tokenizer that `to_json` serialized."""
        return cls(Tokenizer.from_str(text))

    def to_json(self) -> str:
        """Return the whole tokenizer as one string, for the checkpoint."""
        return self._bpe.to_str()

    def __len__(self) -> int:
        return N_SPECIALS + self._bpe.get_vocab_size()

    @property
    def symbols(self) -> list[str]:
        """Name of each id: its bytes as letters, which contain no space; special ids have one."""
        pieces = self._bpe.get_vocab()
        return [" padding", " start", " end", *sorted(pieces, key=pieces.__getitem__)]

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """Text of each id in UTF-8, of which an id may hold a part; empty for special ids."""
        letters = byte_letters()
        pieces = self.symbols[N_SPECIALS:]
        return [b""] * N_SPECIALS + [bytes(letters[letter] for letter in piece) for piece in pieces]

    def split_last(self, text: str) -> tuple[list[int], bytes]:
        """Return the ids of the words of a text but the last, and the last word in UTF-8.

        In a longer text the last word may have other ids, as it may go on.
        """
        assert self._bpe.pre_tokenizer is not None
        words = self._bpe.pre_tokenizer.pre_tokenize_str(text)
        start = words[-1][1][0] if words else 0
        return self.encode(text[:start]), text[start:].encode()

    def knows(self, text: str) -> bool:
        """Whether the ids of a text give it back."""
        return self.decode(self.encode(text)) == text

    def can_write(self, prefix: str) -> bool:
        """Whether a text with this prefix can be written, as `split_last` divides it."""
        stem, rest = self.split_last(prefix)
        written = b"".join(self.token_bytes[token] for token in stem)
        if written + rest != prefix.encode():
            return False
        pieces = [piece for piece in self.token_bytes if piece]
        ends = {0}  # numbers of bytes that can be written
        for end in range(len(rest)):
            if end in ends:
                if any(piece.startswith(rest[end:]) for piece in pieces):
                    return True
                ends |= {end + len(piece) for piece in pieces if rest.startswith(piece, end)}
        return len(rest) in ends

    def encode(self, line: str) -> list[int]:
        """Return the ids of one line, without start and end."""
        return self.encode_batch([line])[0]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without start and end."""
        encodings = self._bpe.encode_batch_fast(list(lines), add_special_tokens=False)
        return [[N_SPECIALS + piece for piece in encoding.ids] for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of one row of ids."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each row of ids; special ids are dropped, broken UTF-8 is U+FFFD."""
        return self._bpe.decode_batch(
            [[piece - N_SPECIALS for piece in row if piece >= N_SPECIALS] for row in rows],
            skip_special_tokens=False,
        )


def byte_letters() -> dict[str, int]:
    """Return the byte that each letter stands for in the names of byte-level tokens.

    Bytes that are printable in Latin-1 stand for themselves, the others, in their order, are the
    letters from U+0100 on (Radford et al. 2019).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    own = {chr(byte): byte for byte in printable}
    return own | {chr(256 + index): byte for index, byte in enumerate(others)}


class Tokenizers:
    """Tokenizers of source and target: the same object if the vocabulary is shared."""

    def __init__(self, source: BytePairTokenizer, target: BytePairTokenizer) -> None:
        self.source = source
        self.target = target

    @property
    def shared(self) -> bool:
        """Whether both sides use one vocabulary."""
        return self.source is self.target

    @classmethod
    def train(
        cls, sources: Sequence[str], targets: Sequence[str], *, vocabulary_size: int, shared: bool
    ) -> Tokenizers:
        """Learn one tokenizer from both sides together if shared, else one from each side."""
        if shared:
            both = BytePairTokenizer.train([*sources, *targets], vocabulary_size)
            return cls(both, both)
        return cls(*(BytePairTokenizer.train(side, vocabulary_size) for side in (sources, targets)))

    def to_plain(self) -> dict[str, Any]:
        """Return JSON types for the checkpoint: tokenizers as strings, target null if shared."""
        return {
            "source": self.source.to_json(),
            "target": None if self.shared else self.target.to_json(),
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Tokenizers:
        """Return the tokenizers that `to_plain` serialized."""
        source, target = plain["source"], plain["target"]
        first = BytePairTokenizer.from_json(source)
        return cls(first, first if target is None else BytePairTokenizer.from_json(target))

    def __str__(self) -> str:
        if self.shared:
            return f"one vocabulary of {len(self.source):,} tokens"
        return f"vocabularies of {len(self.source):,} source and {len(self.target):,} target tokens"
