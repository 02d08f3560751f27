"""Corpora of sentence pairs: line-aligned text files and tab-separated tables."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from triptych.domains.translation.lines import primary_subtag
from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.text.files import Source, TextFilesOfSplits
from triptych.text.tables import SPACES, read_columns

Pair = tuple[str, str]
"""Source sentence and target sentence."""

CHARACTER_LANGUAGES = (
    "ko", "zh", "ja", "yue", "th", "lo", "km", "my", "bo", "dz", "kor", "zho", "jpn", "cmn", "wuu",
    "tha", "lao", "khm", "mya", "bod", "dzo",
)  # fmt: skip
"""Target languages whose BLEU counts characters: sacrebleu's default tokenizer is for languages
with spaces between words, and a Korean word includes its particles."""


@dataclass(frozen=True)
class Corpus(Source[Pair]):
    """Sentence pairs of one translation direction, by split."""

    source_language: str = "en"
    """Language code of the source, such as en, de, ko or zh; of several languages ko+zh."""
    target_language: str = "de"
    """Language code of the target; BLEU of languages without spaces, and of ko, counts
    characters."""

    holds = "sentence pairs"
    compares = "sources"
    targets = "translations"  # see `ParallelText.targets`

    def compared(self, item: Pair) -> tuple[str, ...]:
        return item[:1]

    def bleu_tokenizer(self) -> str:
        """Return the sacrebleu tokenizer for BLEU: "char", or its default "13a"."""
        by_character = primary_subtag(self.target_language) in CHARACTER_LANGUAGES
        return "char" if by_character else "13a"


@dataclass(frozen=True)
class ParallelText(TextFilesOfSplits[Pair], Corpus):
    """Two text files per split, one sentence per line; line n of both is the same sentence.

    The hash of the source sentence decides whether a pair is held out, so that no held-out source
    is trained on; the same target may occur in two splits.
    """

    directory: str = "../shared/data/multi30k"
    files: dict[str, list[str]] = field(
        default_factory=lambda: {
            "train": ["train.{language}.gz"],
            "validation": ["val.{language}.gz"],
            "test": ["test_2016_flickr.{language}.gz"],
        }
    )
    """Names of the files in the folder by split (train, validation, test, any other name), .gz or
    not: one name in which {language} stands for the language code, or "source name | target
    name"."""
    targets: Literal["translations", "summaries", "symbols"] = field(
        default="translations", kw_only=True
    )
    """What the targets are: translations; summaries, which ROUGE scores and whose sources are read
    whole; or strings of symbols, which are compared character by character."""

    def key(self, item: Pair) -> str:
        return item[0]

    def bleu_tokenizer(self) -> str:
        return "char" if self.targets == "symbols" else super().bleu_tokenizer()

    def read_files(self, split: str) -> Iterator[Pair]:
        for name in self.files[split]:
            yield from self.read_file(name, split)

    def read_file(self, name: str, split: str) -> Iterator[Pair]:
        """Yield the pairs of a split that one of the names in `files` stands for."""
        source, target = name.split(" | ", 1) if " | " in name else (name, name)
        source_path = self.path(source.replace("{language}", self.source_language))
        target_path = self.path(target.replace("{language}", self.target_language))
        if source_path == target_path:
            raise UserError(
                f"both sides would be read from {source_path}; expected {{language}} in the file "
                "name, or two names with ' | ' between them"
            )
        sources, targets = (
            [line.strip(SPACES) for line in read_lines(path)] for path in (source_path, target_path)
        )
        if len(sources) != len(targets):
            raise UserError(
                f"{source_path} has {len(sources):,} lines and {target_path} has {len(targets):,}; "
                "line-aligned files have the same number"
            )
        yield from zip(sources, targets, strict=True)


@dataclass(frozen=True)
class TabSeparated(ParallelText):
    """Tables: tab- or comma-separated files, lines of JSON or Parquet, compressed or not."""

    directory: str = "."
    files: dict[str, list[str]] = field(default_factory=lambda: {"train": ["train.tsv"]})
    """Names of the files in the folder by split (train, validation, test, any other name). A name
    as in `ParallelText` stands for two text files, such as a test set from elsewhere."""
    source_column: str = "source"
    """Name of the column with the source sentences in the header, or #1, #2, ... for its place."""
    target_column: str = "target"
    """Column with the target sentences, in the same way."""
    split_column: str | None = None
    """Column with each row's split, of which the tables of a split may have others too; null where
    all rows of a file are of its split."""
    header: bool = True
    """Whether the first line of each file names the columns."""
    split_names: dict[str, str] = field(default_factory=dict)
    """Name of a split in the split column where it has another one there, such as validation:
    dev."""

    def read_file(self, name: str, split: str) -> Iterator[Pair]:
        if "{language}" in name or " | " in name:
            yield from super().read_file(name, split)
            return
        columns = [self.source_column, self.target_column]
        if self.split_column is not None:
            columns.append(self.split_column)
        wanted = self.split_names.get(split, split)
        for cells, _ in read_columns(self.path(name), columns, header=self.header):
            source, target, *of_row = cells
            if not of_row or of_row[0] == wanted:
                yield source, target
