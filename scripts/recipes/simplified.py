"""The simplified form of each traditional Chinese character.

Writes characters.tsv with the columns `character` and `read_as`: OpenCC's table for single
characters (its configuration t2s), without regard to the words around (乾 is always 干). OpenCC and
its dictionaries have the Apache licence 2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from triptych.errors import UserError
from triptych.types import Checked

HAN_BLOCKS = (range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0x20000, 0x323B0))
"""Code points of the Han characters (Unicode, CJK unified ideographs and extensions A to H)."""


@dataclass(frozen=True)
class Options(Checked):
    """The recipe has no options."""


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
    """Yield the file; raises UserError where the package opencc is not installed."""
    try:
        from opencc import OpenCC
    except ImportError:
        raise UserError(
            "the table is that of the package opencc: pip install 'triptych[chinese]'"
        ) from None
    characters = [chr(code) for block in HAN_BLOCKS for code in block]
    # One character a line: OpenCC takes words together, and no word spans two lines.
    converted = OpenCC("t2s").convert("\n".join(characters)).split("\n")
    rows = zip(characters, converted, strict=True)
    changed = [(before, after) for before, after in rows if before != after and len(after) == 1]
    yield "characters.tsv", [("character", "read_as"), *changed]
