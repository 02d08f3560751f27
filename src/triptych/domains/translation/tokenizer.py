"""Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909) that loses nothing.

The pieces are learnt from the training side alone, over bytes, with no normaliser: every string
comes back exactly, whatever its script. Three ids in front of the pieces are ours and stand for no
text, so that a sentence that holds the characters "<end>" is a sentence like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PAD, START, END = 0, 1, 2
SPECIALS = 3
SMALLEST = SPECIALS + 256  # every byte has a piece of its own


class BytePairTokenizer:
    """Text to ids and back; ids 0, 1 and 2 are padding, start and end."""

    def __init__(self, pieces: Tokenizer) -> None:
        self._pieces = pieces

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int) -> BytePairTokenizer:
        """Learn the pieces from lines of text.

        vocabulary_size: number of ids wanted, specials and the 256 bytes included; a small text
        gives fewer. Raises ValueError below the 259 that are always there.
        """
        if vocabulary_size < SMALLEST:
            raise ValueError(
                f"vocabulary_size is {vocabulary_size}; 256 bytes and {SPECIALS} special ids need "
                f"at least {SMALLEST}."
            )
        pieces = Tokenizer(models.BPE())
        # Cuts before blanks and between letters, digits and signs, as GPT-2 does; adds nothing.
        pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        pieces.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary_size - SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        pieces.train_from_iterator(lines, trainer)
        return cls(pieces)

    @classmethod
    def from_json(cls, text: str) -> BytePairTokenizer:
        """Open what `to_json` gave."""
        return cls(Tokenizer.from_str(text))

    def to_json(self) -> str:
        """The whole tokenizer as one string, for the checkpoint."""
        return self._pieces.to_str()

    def __len__(self) -> int:
        return SPECIALS + self._pieces.get_vocab_size()

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, without start and end."""
        encodings = self._pieces.encode_batch_fast(list(lines), add_special_tokens=False)
        return [[SPECIALS + piece for piece in encoding.ids] for encoding in encodings]

    def decode_batch(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """Text of each row of ids; special ids are left out, broken UTF-8 becomes U+FFFD."""
        return self._pieces.decode_batch(
            [[piece - SPECIALS for piece in row if piece >= SPECIALS] for row in rows],
            skip_special_tokens=False,
        )

    def encode(self, line: str) -> list[int]:
        """Ids of one line, without start and end."""
        return self.encode_batch([line])[0]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of one row of ids."""
        return self.decode_batch([ids])[0]


class Tokenizers:
    """The tokenizers of both sides: one and the same object where they share a vocabulary."""

    def __init__(self, source: BytePairTokenizer, target: BytePairTokenizer) -> None:
        self.source = source
        self.target = target

    @property
    def shared(self) -> bool:
        """Whether both sides have the same ids."""
        return self.source is self.target

    @classmethod
    def train(
        cls, sources: Sequence[str], targets: Sequence[str], *, vocabulary_size: int, shared: bool
    ) -> Tokenizers:
        """Learn one tokenizer from both sides together, or one from each."""
        if shared:
            both = BytePairTokenizer.train([*sources, *targets], vocabulary_size)
            return cls(both, both)
        return cls(
            BytePairTokenizer.train(sources, vocabulary_size),
            BytePairTokenizer.train(targets, vocabulary_size),
        )

    def to_plain(self) -> dict[str, Any]:
        """JSON types for the checkpoint: the tokenizers as strings, target null where shared."""
        return {
            "source": self.source.to_json(),
            "target": None if self.shared else self.target.to_json(),
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Tokenizers:
        """Open what `to_plain` gave."""
        source = BytePairTokenizer.from_json(plain["source"])
        if plain["target"] is None:
            return cls(source, source)
        return cls(source, BytePairTokenizer.from_json(plain["target"]))
