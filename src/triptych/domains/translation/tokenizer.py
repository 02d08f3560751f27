"""Lossless byte-level byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909).

Merges are learnt over bytes from the training split alone, without a normalizer: decoding returns
every string exactly, in any script. Ids 0, 1 and 2 are padding, start and end; no text encodes to
them, so a sentence may contain the characters "<end>".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
