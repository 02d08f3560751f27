"""Chinese in one script: traditional characters are read as simplified ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from triptych.errors import UserError
from triptych.text.byte_level import BytePairs
from triptych.text.tokenizer import TextTokenizer, TokenizerConfig

HAN_BLOCKS = (range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0x20000, 0x323B0))
"""Code points of the Han characters (Unicode, CJK unified ideographs and extensions A to H)."""


@dataclass(frozen=True)
class SimplifiedChinese(TokenizerConfig):
    """Tokens of another kind, in text whose traditional Chinese characters are made simplified.

    For data in both scripts: one word then has one spelling. Character by character, without
    regard to the words around (乾 is always 干), in all text of the vocabulary: a shared one also
    writes simplified characters alone. The table is OpenCC's, which training needs; the checkpoint
    contains it.
    """

    of: TokenizerConfig = field(default_factory=BytePairs)
    """Kind of tokens, by class path."""

    min_pieces: ClassVar[int] = BytePairs.min_pieces

    def build(
        self, lines: Iterable[str], vocabulary_size: int, specials: Sequence[str]
    ) -> TextTokenizer:
        table = simplified_characters()
        translated = (line.translate(table) for line in lines)
        plain = self.of.build(translated, vocabulary_size, specials)
        return plain.reading(table)


def simplified_characters() -> dict[int, str]:
    """Return the simplified form, one character, of each traditional character by code point.

    OpenCC's table for single characters (its configuration t2s). Raises UserError where the package
    is not installed.
    """
    try:
        from opencc import OpenCC
    except ImportError as error:
        raise UserError(
            "data.tokenizer SimplifiedChinese needs the package opencc to learn a vocabulary: "
            "pip install 'triptych[chinese]'"
        ) from error
    characters = [chr(code) for block in HAN_BLOCKS for code in block]
    # One character a line: OpenCC takes words together, and no word spans two lines.
    converted = OpenCC("t2s").convert("\n".join(characters)).split("\n")
    pairs = zip(characters, converted, strict=True)
    return {ord(before): after for before, after in pairs if before != after and len(after) == 1}
