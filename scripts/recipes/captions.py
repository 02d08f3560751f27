"""Labelled image captions of Multi30k: the language of one, and whether two are translations.

Writes for each split (train, validation, test):

- languages.SPLIT.tsv: some characters from the middle of a line, and the code of its language;
- pairs.SPLIT.tsv: a line of the first language, a line of the second one, and `translation` or
  `other`; each line of the first language occurs once with its translation, and once with the
  translation of another line, which is one of those of the most similar lengths.

Any parallel texts will do. The licence of the texts applies: Multi30k is for non-commercial
research and education.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.types import Checked, PositiveInt

NEAR = 10
"""Lines of similar length among which the other line of a pair is drawn."""


@dataclass(frozen=True)
class Options(Checked):
    """The texts: line n has the same meaning in every language."""

    directory: str = "../shared/data/multi30k"
    """Folder that holds the files; `triptych data fetch multi30k` downloads them."""
    files: dict[str, str] = field(
        default_factory=lambda: {
            "train": "train.{language}.gz",
            "validation": "val.{language}.gz",
            "test": "test_2016_flickr.{language}.gz",
        }
    )
    """Name of the file in the folder by split, .gz or not; {language} stands for the code of a
    language."""
    languages: tuple[str, ...] = ("en", "de", "fr")
    """Codes of the languages; the first two are those of the pairs."""
    window: PositiveInt = 12
    """Number of characters of a line in `languages`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.languages) < 2:
            raise ValueError(f"languages are {list(self.languages)}; expected two or more")


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, ...]]]]:
    """Yield the files."""
    folder = Path(options.directory).expanduser()
    for split, name in options.files.items():
        paths = {code: folder / name.replace("{language}", code) for code in options.languages}
        texts = {code: read_texts(path) for code, path in paths.items()}
        cut = ((middle(line, options.window), code) for code in texts for line in texts[code])
        yield f"languages.{split}.tsv", ((text, code) for text, code in cut if text)
        first, second = list(texts.values())[:2]
        if len(first) != len(second):
            raise UserError(
                f"the {split} split has {len(first):,} lines of {options.languages[0]} and "
                f"{len(second):,} of {options.languages[1]}; expected equal numbers"
            )
        yield f"pairs.{split}.tsv", pairs(first, second)


def read_texts(path: Path) -> list[str]:
    """Return the stripped lines of a file; a tab, which would end a cell, becomes a space."""
    return [line.strip().replace("\t", " ") for line in read_lines(path)]


def middle(line: str, window: int) -> str:
    start = max(0, len(line) - window) // 2
    return line[start : start + window].strip()


def pairs(first: list[str], second: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each line with its translation and with another line; none of them is empty."""
    for number, other in enumerate(other_lines(second)):
        if first[number] and second[number]:
            yield first[number], second[number], "translation"
        if first[number] and second[other] and other != number:
            yield first[number], second[other], "other"


def other_lines(lines: list[str]) -> Iterator[int]:
    """Yield, for each line, the number of another line of about its length; its own for one line.

    Each line is drawn among the NEAR ones before and after it in the order of lengths.
    """
    order = sorted(range(len(lines)), key=lambda number: (len(lines[number]), number))
    rank = {number: place for place, number in enumerate(order)}
    draw = random.Random(len(lines))
    for number, line in enumerate(lines):
        place = rank[number]
        near = order[max(0, place - NEAR) : place + NEAR + 1]
        different = [each for each in near if lines[each] != line]
        yield draw.choice(different) if different else number
