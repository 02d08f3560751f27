"""Text to ids and back, the interface of the kinds of tokenizers, and text as it is typed.

The first ids are special: padding, which is 0, and others that a domain names. No text encodes to
them, so that a text may contain the characters of their names.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any, ClassVar

from tokenizers import Tokenizer, models

from triptych.errors import UserError
from triptych.types import Checked

QUOTES = {**dict.fromkeys("‘’‚‛′", "'"), **dict.fromkeys("“”„‟″«»", '"')}
PLAIN = {**QUOTES, **dict.fromkeys("‐‑‒–—―−", "-")}
"""Characters that Unicode's compatibility forms leave alone, and what a keyboard has for them."""


def readable(line: str, known: Callable[[str], bool]) -> str:
    """Return a line in which characters that are not known are replaced by harmless equals.

    The equals are nothing for invisible characters (soft hyphens, zero-width ones), straight quotes
    and hyphens, composed or decomposed letters, and Unicode's compatibility forms (full-width
    letters, ligatures, ...). A known character stays, and so does one without a known equal. Where
    a quote is replaced, all of the line are. White space of all kinds is a space, known or not; the
    full-width punctuation of a line with known Chinese, Japanese or Korean letters stays.
    """
    spaced = "".join(" " if each.isspace() and each > "\x7f" else each for each in line)
    if spaced == line and all(map(known, line)):
        return line
    line = unicodedata.normalize("NFC", spaced)
    quotes = {} if all(known(each) for each in line if each in QUOTES) else QUOTES
    width, category = unicodedata.east_asian_width, unicodedata.category
    own: set[str] = set()
    if any(width(each) == "W" and known(each) for each in line):
        own = {each for each in line if width(each) == "F" and category(each)[0] == "P"}
    text = "".join(
        quotes[each] if each in quotes else each if each in own else _equal(each, known)
        for each in line
    )
    return re.sub(" {2,}", " ", text)


def _equal(character: str, known: Callable[[str], bool]) -> str:
    if known(character):
        return character
    category, name = unicodedata.category(character), unicodedata.name(character, "")
    if category == "Cf" or name.startswith("VARIATION SELECTOR"):
        return ""
    compatible = (unicodedata.normalize(form, character) for form in ("NFKC", "NFKD"))
    equals = (PLAIN.get(character, character), *compatible)
    return next((each for each in equals if all(map(known, each))), character)


def in_usual_case(line: str, n_tokens: Callable[[str], int]) -> str | None:
    """Return a line in capitals in the case that the vocabulary has seen; None for another line.

    Each word gets the form, in small letters or with a capital, of fewer tokens. None also where
    that saves less than half of the tokens: the vocabulary knows capitals, or case makes no
    difference. n_tokens: of a text.
    """
    words = line.split()
    if line != line.upper() or sum(len(word) > 1 and word != word.lower() for word in words) < 2:
        return None
    forms = ((word.lower(), word.capitalize()) for word in words)
    chosen = [min(form, key=lambda word: n_tokens(f" {word}")) for form in forms]
    text = re.sub(r"(^|[.!?] )\w", lambda found: found[0].upper(), " ".join(chosen))
    return text if 2 * n_tokens(text) <= n_tokens(line) else None


PAD = 0
REPLACED = "replaced"
"""Key of the characters that a serialized tokenizer replaces: all before, all after."""
SPACED = "spaced"
"""Key of whether a serialized tokenizer reads a space before a text."""
IDEOGRAM = "\u3040-\u30ff\u3400-\u9fff"
"""Range of the letters of scripts without spaces between words: Chinese characters, kana."""
WITHOUT_SPACE = re.compile(rf"$|[\s{IDEOGRAM}]")
"""Begin of a text before which no space is read."""


@dataclass(frozen=True)
class TokenizerConfig(Checked, ABC):
    """Kind of tokenizer, for any domain of text."""

    min_pieces: ClassVar[int] = 2
    """Smallest vocabulary in tokens, without the special ids."""

    @abstractmethod
    def build(self, lines: Iterable[str], size: int, specials: Sequence[str]) -> TextTokenizer:
        """Learn a tokenizer from lines; size: most ids, those named `specials` included."""


class TextTokenizer:
    """Text to ids and back.

    tokenizer: of the text alone, whose ids follow those of `specials`. Where it has a token for
    text that it does not know, this is its first one. replaced: character that each code point is
    read as, where that is another one. spaced: whether a space is read before a text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        specials: Sequence[str],
        replaced: Mapping[int, str] | None = None,
        *,
        spaced: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self.specials = tuple(specials)
        self.replaced = dict(replaced or {})
        self.spaced = spaced

    @classmethod
    def from_json(cls, text: str, specials: Sequence[str]) -> TextTokenizer:
        """Return the tokenizer that `to_json` serialized; specials: of its domain."""
        plain = json.loads(text)
        before, after = plain.get(REPLACED, ("", ""))
        replaced = dict(zip(map(ord, before), after, strict=True))
        tokenizer = Tokenizer.from_str(plain.get("tokenizer", text))
        return cls(tokenizer, specials, replaced, spaced=plain.get(SPACED, False))

    def to_json(self) -> str:
        """Return the tokenizer without its special ids as one string, for the checkpoint."""
        tokenizer = self._tokenizer.to_str()
        if not self.replaced and not self.spaced:
            return tokenizer
        replaced = ["".join(map(chr, self.replaced)), "".join(self.replaced.values())]
        plain = {REPLACED: replaced, SPACED: self.spaced, "tokenizer": tokenizer}
        return json.dumps(plain, ensure_ascii=False)

    def to_tokenizer_json(self) -> dict[str, Any]:
        """Return a tokenizer.json of Hugging Face's library; UserError where there is none."""
        if self.replaced or self.spaced:
            raise UserError(
                "the tokenizer changes a text before it reads it, which a tokenizer file cannot "
                "say; expected --format safetensors"
            )
        plain: dict[str, Any] = json.loads(self.to_json())
        plain["model"]["vocab"] = {name: index for index, name in enumerate(self.symbols)}
        return plain

    def __len__(self) -> int:
        return len(self.specials) + self._tokenizer.get_vocab_size()

    @property
    def unknown(self) -> str | None:
        """Name and text of the token for what the vocabulary cannot write; None without one."""
        name: str | None = getattr(self._tokenizer.model, "unk_token", None)
        return name

    def unknown_share(self, lines: Iterable[str], *, most: int = 5000) -> float:
        """Return the share of tokens that are the unknown one, of at most so many lines."""
        if self.unknown is None:
            return 0.0
        tokens = list(chain.from_iterable(self.encode_batch(list(islice(lines, most)))))
        return tokens.count(self.n_reserved - 1) / max(1, len(tokens))

    def unknown_sentence(self, lines: Iterable[str]) -> str:
        """Return the end of a sentence about unknown tokens of text; empty for hardly any."""
        share = self.unknown_share(lines)
        return f"; {share:.1%} of the tokens are {self.unknown}" if share >= 0.005 else ""

    @property
    def n_reserved(self) -> int:
        """Number of the first ids that are no text: the special ones and the unknown token."""
        return len(self.specials) + (self.unknown is not None)

    @property
    def symbols(self) -> list[str]:
        """Name of each id; of byte-level kinds its bytes as letters."""
        pieces = self._tokenizer.get_vocab()
        return [*self.specials, *sorted(pieces, key=pieces.__getitem__)]

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """Bytes of each id of a byte-level kind; empty for special ids and the unknown token."""
        letters = byte_letters()
        pieces = self.symbols[self.n_reserved :]
        texts = [bytes(letters[letter] for letter in piece) for piece in pieces]
        return [b""] * self.n_reserved + texts

    @property
    def words(self) -> list[str | None]:
        """Word of each id, without its space; None where it is, or in BPE may be, a part of one."""
        model, none = self._tokenizer.model, [None] * self.n_reserved
        if isinstance(model, models.WordPiece):
            continues, names = model.continuing_subword_prefix, self.symbols[self.n_reserved :]
            return none + [None if name.startswith(continues) else name for name in names]
        whole = isinstance(model, models.WordLevel)
        found: list[str | None] = []
        for token in self.token_bytes:
            text = token.decode(errors="replace")
            is_word = text.strip() and "\ufffd" not in text and (whole or text.startswith(" "))
            found.append(text.strip() if is_word else None)
        return found

    def split_last(self, text: str) -> tuple[list[int], bytes]:
        """Return the ids of all words but the last, which may go on, and the last in UTF-8."""
        assert self._tokenizer.pre_tokenizer is not None
        text = self.as_read(text)
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(text)
        start = words[-1][1][0] if words else 0
        return self.encode(text[:start]), text[start:].encode()

    def knows(self, text: str) -> bool:
        """Whether the ids of a text give it back."""
        return self.decode(self.encode(text)) == text

    @cached_property
    def characters(self) -> frozenset[str]:
        """Characters that a token has as a whole, alone or among others."""
        if isinstance(self._tokenizer.model, models.WordPiece):
            return frozenset("".join(self.symbols[self.n_reserved :]))
        # A token may begin or end inside a character.
        return frozenset("".join(each.decode(errors="ignore") for each in self.token_bytes))

    def has_character(self, character: str) -> bool:
        """Whether the vocabulary has a character, as the tokenizer reads it, as a whole."""
        text = character.translate(self.replaced)
        if self._tokenizer.normalizer is not None:
            text = self._tokenizer.normalizer.normalize_str(text)
        return all(each in self.characters or each == " " for each in text)

    def readable(self, line: str) -> str:
        """Return a line as the model can read it, see `readable`; for use, not for training."""
        return readable(line, self._known)

    def unread(self, line: str) -> str:
        """Return the characters of a line, spaces left out, that the vocabulary has not."""
        return "".join(each for each in self.readable(line) if each > " " and not self._known(each))

    def unread_share(self, line: str) -> float:
        """Return the share of a line's characters, spaces left out, that the vocabulary has not."""
        return len(self.unread(line)) / max(1, len("".join(self.readable(line).split())))

    def count(self, line: str) -> int:
        """Return the number of tokens of a line."""
        return len(self.encode(line))

    @cached_property
    def _known(self) -> Callable[[str], bool]:
        return functools.cache(self.has_character)

    def as_read(self, line: str) -> str:
        """Return a line with its characters replaced, and with the space before it."""
        line = line.translate(self.replaced)
        return f" {line}" if self.spaced and not WITHOUT_SPACE.match(line) else line

    def encode(self, line: str) -> list[int]:
        """Return the ids of one line, without special ids."""
        return self.encode_batch([line])[0]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without special ids."""
        read, first = [*map(self.as_read, lines)], len(self.specials)
        encodings = self._tokenizer.encode_batch_fast(read, add_special_tokens=False)
        return [[first + piece for piece in encoding.ids] for encoding in encodings]

    def located(self, lines: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each line, and the first character of each and that after its last."""
        read, first = [*map(self.as_read, lines)], len(self.specials)
        encodings = self._tokenizer.encode_batch(read, add_special_tokens=False)
        found = []
        for line, text, each in zip(lines, read, encodings, strict=True):
            more = len(text) - len(line)  # 1 with a space before it
            offsets = [(max(0, start - more), max(0, end - more)) for start, end in each.offsets]
            found.append(([first + piece for piece in each.ids], offsets))
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of one row of ids."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each row of ids; special ids are dropped, broken UTF-8 is U+FFFD."""
        texts = self._decoded(rows)
        return [text.removeprefix(" ") for text in texts] if self.spaced else texts

    def decode_part(self, ids: Iterable[int]) -> str:
        """Return the text of ids that stand somewhere in a row, with the space before them."""
        return self._decoded([ids])[0]

    def _decoded(self, rows: Iterable[Iterable[int]]) -> list[str]:
        first = len(self.specials)
        return self._tokenizer.decode_batch(
            [[int(piece) - first for piece in row if piece >= first] for row in rows],
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


@dataclass(frozen=True)
class TextFormat:
    """How a model reads and writes text, for libraries that run it without Triptych.

    A tokenizer is the content of a tokenizer.json of Hugging Face's library, whose ids are those of
    the model, the special ones included.
    """

    PAD: ClassVar[int] = PAD
    START: ClassVar[int] = 1
    END: ClassVar[int] = 2

    specials: tuple[str, ...]
    """Names of padding, start and end, and of the mask in a model that has one."""
    forbidden: tuple[int, ...]
    """Ids that the model never writes."""
    max_length: int
    """Longest text in tokens."""
    source: dict[str, Any]
    """Tokenizer of the text that the model reads."""
    target: dict[str, Any] | None = None
    """Tokenizer of the text that it writes; None for that of `source`."""
    translates: bool = False
    """Whether a text is read whole, with its end, and not continued after a start."""

    def names(self, *, target: bool = False) -> list[str]:
        """Return the name of each id of the source, or of the target."""
        tokenizer = self.target if target and self.target is not None else self.source
        vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
        return sorted(vocabulary, key=vocabulary.__getitem__)
