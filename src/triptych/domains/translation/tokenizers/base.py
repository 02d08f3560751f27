"""Text to ids and back, the tokenizers of both sides, and what kinds of tokenizers share.

Ids 0, 1 and 2 are padding, start and end; no text encodes to them, so a sentence may contain the
characters "<end>". All kinds work on bytes: what is in the vocabulary decodes to exactly the text
that it came from, in any script, except where a kind replaces characters (`SimplifiedChinese`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from triptych.errors import UserError
from triptych.types import Checked

PAD, START, END = 0, 1, 2
SPECIALS = ("<pad>", "<s>", "</s>")
"""Names of the special ids in exports."""
N_SPECIALS = len(SPECIALS)
REPLACED = "replaced"
"""Key of the characters that a serialized tokenizer replaces: all before, all after."""
UNKNOWN = "<unk>"
"""Name and text of the token that stands for everything outside a vocabulary of whole units."""


@dataclass(frozen=True)
class TokenizerConfig(Checked, ABC):
    """Kind of tokenizer."""

    lossless: ClassVar[bool]
    """Whether every text can be encoded, so that its ids give it back."""
    min_size: ClassVar[int]
    """Smallest vocabulary in tokens, the special ids included."""

    @abstractmethod
    def build(self, lines: Iterable[str], vocabulary_size: int) -> TextTokenizer:
        """Learn a tokenizer from lines of text.

        vocabulary_size: maximum number of ids, special ids included; a small text gives fewer.
        """


class TextTokenizer:
    """Text to ids and back; ids 0, 1 and 2 are padding, start and end.

    replaced: character that each code point is read as, where that is another one.
    """

    def __init__(self, tokenizer: Tokenizer, replaced: Mapping[int, str] | None = None) -> None:
        self._tokenizer = tokenizer
        self._replaced = dict(replaced or {})

    def reading(self, replaced: Mapping[int, str]) -> TextTokenizer:
        """Return this tokenizer for text in which these code points are replaced first."""
        return TextTokenizer(self._tokenizer, replaced)

    @classmethod
    def from_json(cls, text: str) -> TextTokenizer:
        """Return the tokenizer that `to_json` serialized."""
        plain = json.loads(text)
        if REPLACED not in plain:
            return cls(Tokenizer.from_str(text))
        before, after = plain[REPLACED]
        replaced = dict(zip(map(ord, before), after, strict=True))
        return cls(Tokenizer.from_str(plain["tokenizer"]), replaced)

    def to_json(self) -> str:
        """Return the whole tokenizer as one string, for the checkpoint."""
        tokenizer = self._tokenizer.to_str()
        if not self._replaced:
            return tokenizer
        replaced = ["".join(map(chr, self._replaced)), "".join(self._replaced.values())]
        return json.dumps({REPLACED: replaced, "tokenizer": tokenizer}, ensure_ascii=False)

    def to_tokenizer_json(self) -> dict[str, Any]:
        """Return a tokenizer.json of Hugging Face's library with the ids of the model.

        Raises UserError for a tokenizer that it cannot describe.
        """
        plain: dict[str, Any] = json.loads(self.to_json())
        if REPLACED in plain:
            raise UserError(
                "the tokenizer replaces characters before it reads a text (SimplifiedChinese), "
                "which a tokenizer file cannot say; expected --format safetensors"
            )
        vocabulary = plain["model"]["vocab"]
        if taken := [name for name in SPECIALS if name in vocabulary]:
            raise UserError(
                f"the vocabulary has a piece {taken[0]!r}, the name of a special id in tokenizer "
                "files; expected --format safetensors"
            )
        shifted = {name: index + N_SPECIALS for name, index in vocabulary.items()}
        plain["model"]["vocab"] = {**{name: n for n, name in enumerate(SPECIALS)}, **shifted}
        return plain

    def __len__(self) -> int:
        return N_SPECIALS + self._tokenizer.get_vocab_size()

    @property
    def symbols(self) -> list[str]:
        """Name of each id: its bytes as letters, which contain no space; special ids have one."""
        pieces = self._tokenizer.get_vocab()
        return [" padding", " start", " end", *sorted(pieces, key=pieces.__getitem__)]

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """Text of each id in UTF-8, of which an id may hold a part; empty for special ids and for
        the unknown token."""
        letters = byte_letters()
        pieces = ("" if piece == UNKNOWN else piece for piece in self.symbols[N_SPECIALS:])
        texts = (bytes(letters[letter] for letter in piece) for piece in pieces)
        return [b""] * N_SPECIALS + list(texts)

    @property
    def words(self) -> list[str | None]:
        """Return for each id its word, without the space before it; None where it is no whole word.

        Without a space before it a token of byte-level BPE may be a part of a word.
        """
        whole = isinstance(self._tokenizer.model, models.WordLevel)
        found: list[str | None] = []
        for token in self.token_bytes:
            text = token.decode(errors="replace")
            is_word = text.strip() and "\ufffd" not in text and (whole or text.startswith(" "))
            found.append(text.strip() if is_word else None)
        return found

    def split_last(self, text: str) -> tuple[list[int], bytes]:
        """Return the ids of the words of a text but the last, and the last word in UTF-8.

        In a longer text the last word may have other ids, as it may go on.
        """
        assert self._tokenizer.pre_tokenizer is not None
        text = text.translate(self._replaced)
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(text)
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
        lines = [line.translate(self._replaced) for line in lines]
        encodings = self._tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        return [[N_SPECIALS + piece for piece in encoding.ids] for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of one row of ids."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each row of ids; special ids are dropped, broken UTF-8 is U+FFFD."""
        return self._tokenizer.decode_batch(
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


def whole_units(
    split: pre_tokenizers.PreTokenizer,
    lines: Iterable[str],
    vocabulary_size: int,
    *,
    min_count: int = 1,
) -> TextTokenizer:
    """Learn a tokenizer whose tokens are the most frequent of the units that `split` finds.

    split: gives units whose letters stand for bytes, as `ByteLevel` does. min_count: occurrences
    from which a unit is in the vocabulary. All others are UNKNOWN.
    """
    counted = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    counted.pre_tokenizer = split
    size = vocabulary_size - N_SPECIALS - 1
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=min_count, show_progress=False
    )
    counted.train_from_iterator(lines, trainer)
    found = counted.get_vocab()
    # Not as an added token of the library, which would read the characters "<unk>" as this token.
    names = [UNKNOWN, *sorted(found, key=found.__getitem__)]
    ids = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    return TextTokenizer(tokenizer)


class Tokenizers:
    """Tokenizers of source and target: the same object if the vocabulary is shared."""

    def __init__(self, source: TextTokenizer, target: TextTokenizer) -> None:
        self.source = source
        self.target = target

    @property
    def shared(self) -> bool:
        """Whether both sides use one vocabulary."""
        return self.source is self.target

    @classmethod
    def train(
        cls,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        kind: TokenizerConfig,
        vocabulary_size: int,
        shared: bool,
    ) -> Tokenizers:
        """Learn one tokenizer from both sides together if shared, else one from each side."""
        if shared:
            both = kind.build([*sources, *targets], vocabulary_size)
            return cls(both, both)
        return cls(*(kind.build(side, vocabulary_size) for side in (sources, targets)))

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
        first = TextTokenizer.from_json(source)
        return cls(first, first if target is None else TextTokenizer.from_json(target))

    def __str__(self) -> str:
        if self.shared:
            return f"one vocabulary of {len(self.source):,} tokens"
        return f"vocabularies of {len(self.source):,} source and {len(self.target):,} target tokens"
