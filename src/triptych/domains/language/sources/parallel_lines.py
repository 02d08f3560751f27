"""Labelled lines of parallel texts: the language of a line, and whether two lines translate."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from triptych.domains.language.sources.labelled import Labelled, LabelledSource
from triptych.errors import UserError
from triptych.files.results import read_lines
from triptych.types import PositiveInt

PLACEHOLDER = "{language}"
NEAR = 10
"""Lines of similar length among which the other line of a pair is drawn."""


@dataclass(frozen=True)
class ParallelLines(LabelledSource):
    """Files with one sentence a line; line n has the same meaning in every language."""

    directory: str = "../shared/data/multi30k"
    """Folder that holds the files."""
    files: dict[str, str] = field(
        default_factory=lambda: {
            "train": "train.{language}.gz",
            "validation": "val.{language}.gz",
            "test": "test_2016_flickr.{language}.gz",
        }
    )
    """Name of the file in the folder by split, .gz or not; {language} stands for the code of a
    language."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for split, name in self.files.items():
            if PLACEHOLDER not in name:
                raise ValueError(f"the file of {split} is {name}; expected {PLACEHOLDER} in it")

    def splits(self) -> list[str]:
        return list(self.files)

    def lines(self, split: str, language: str) -> list[str]:
        """Return the stripped lines of a language; UserError for a missing file."""
        name = self.files[split].replace(PLACEHOLDER, language)
        return [line.strip() for line in read_lines(Path(self.directory).expanduser() / name)]


@dataclass(frozen=True)
class Languages(ParallelLines):
    """Lines, each with the code of its language, for classification."""

    languages: tuple[str, ...] = ("en", "de", "fr")
    """Codes of the languages."""
    window: PositiveInt | None = None
    """Number of characters of a line that are kept, from its middle, which makes the task harder;
    null for whole lines."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.languages) < 2:
            raise ValueError(f"languages are {list(self.languages)}; expected two or more")

    def read(self, split: str) -> list[Labelled]:
        every = [(code, line) for code in self.languages for line in self.lines(split, code)]
        texts = ((code, self._cut(line)) for code, line in every)
        return [Labelled((text,), code) for code, text in texts if text]

    def _cut(self, line: str) -> str:
        if self.window is None:
            return line
        start = max(0, len(line) - self.window) // 2
        return line[start : start + self.window].strip()


@dataclass(frozen=True)
class TranslationPairs(ParallelLines):
    """Pairs of lines with the label `translation` or `other`, for entailment or similarity.

    Each line of the first language occurs once with its translation and once with the translation
    of another line, which is one of those of the most similar lengths.
    """

    source_language: str = "en"
    """Code of the language of the first text."""
    target_language: str = "de"
    """Code of the language of the second text."""

    def read(self, split: str) -> list[Labelled]:
        sources = self.lines(split, self.source_language)
        targets = self.lines(split, self.target_language)
        if len(sources) != len(targets):
            raise UserError(
                f"the {split} split has {len(sources):,} lines of {self.source_language} and "
                f"{len(targets):,} of {self.target_language}; expected equal numbers"
            )
        examples = []
        for number, other in zip(range(len(sources)), other_lines(targets), strict=True):
            for line, label in ((number, "translation"), (other, "other")):
                if sources[number] and targets[line] and (line == number) == (label != "other"):
                    examples.append(Labelled((sources[number], targets[line]), label))
        return examples


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
