"""Corpora of sentence pairs: line-aligned text files and tab-separated tables."""

from collections.abc import Iterator, Sequence
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
    targets = "translations"  # see `FileCorpus.targets`

    def compared(self, item: Pair) -> tuple[str, ...]:
        return item[:1]

    def bleu_tokenizer(self) -> str:
        """Return the sacrebleu tokenizer for BLEU: "char", or its default "13a"."""
        by_character = primary_subtag(self.target_language) in CHARACTER_LANGUAGES
        return "char" if by_character else "13a"


@dataclass(frozen=True)
class FileCorpus(TextFilesOfSplits[Pair], Corpus):
    """Corpus in files of a folder.

    The hash of the source sentence decides whether a pair is held out, so that no held-out source
    is trained on; the same target may occur in two splits.
    """

    targets: Literal["translations", "summaries", "symbols"] = field(
        default="translations", kw_only=True
    )
    """What the targets are: translations; summaries, which ROUGE scores and whose sources are read
    whole; or strings of symbols, which are compared character by character."""

    def key(self, item: Pair) -> str:
        return item[0]

    def bleu_tokenizer(self) -> str:
        return "char" if self.targets == "symbols" else super().bleu_tokenizer()

    def read_aligned(self, names: Sequence[str]) -> Iterator[Pair]:
        """Yield the pairs of line-aligned files; for names see `ParallelText.files`."""
        for name in names:
            source, target = name.split(" | ", 1) if " | " in name else (name, name)
            source_path = self.path(source.replace("{language}", self.source_language))
            target_path = self.path(target.replace("{language}", self.target_language))
            if source_path == target_path:
                raise UserError(
                    f"both sides would be read from {source_path}; expected {{language}} in the "
                    "file name, or two names with ' | ' between them"
                )
            sources, targets = (
                [line.strip(SPACES) for line in read_lines(path)]
                for path in (source_path, target_path)
            )
            if len(sources) != len(targets):
                raise UserError(
                    f"{source_path} has {len(sources):,} lines and {target_path} has "
                    f"{len(targets):,}; line-aligned files have the same number"
                )
            yield from zip(sources, targets, strict=True)


@dataclass(frozen=True)
class ParallelText(FileCorpus):
    """Two text files per split, one sentence per line; line n of both is the same sentence."""

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

    def file_splits(self) -> list[str]:
        return list(self.files)

    def read_files(self, split: str) -> Iterator[Pair]:
        return self.read_aligned(self.files[split])


@dataclass(frozen=True)
class TabSeparated(FileCorpus):
    """Tables: tab- or comma-separated files, lines of JSON or Parquet, compressed or not."""

    directory: str = "../shared/data/ko-en"
    files: list[str] | dict[str, list[str]] = field(
        default_factory=lambda: ["tatoeba/tatoeba-ko-en.tsv.gz", "kss/kss-ko-en.tsv.gz"]
    )
    """Names of the files in the folder, read one after the other; {split} in a name stands for the
    split's name in `split_names`, for data with one file per split. Or the names by split."""
    source_column: str = "ko"
    """Name of the column with the source sentences in the header, or #1, #2, ... for its place."""
    target_column: str = "en"
    """Column with the target sentences, in the same way."""
    split_column: str | None = "split"
    """Column with each row's split; null if each split has its own file."""
    header: bool = True
    """Whether the first line of each file names the columns."""
    split_names: dict[str, str] = field(
        default_factory=lambda: {"train": "train", "validation": "dev", "test": "test"}
    )
    """Name of each split in the split column or in the file names."""
    aligned: dict[str, list[str]] = field(default_factory=dict)
    """Additional splits in line-aligned text files of the folder, with names as in
    `ParallelText.files`: a test set from elsewhere, for example."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for split in self.aligned:
            if split in self.split_names:
                raise ValueError(f"the split {split} is in both aligned and split_names")
        names = isinstance(self.files, list) and all("{split}" in name for name in self.files)
        ways = names + isinstance(self.files, dict) + (self.split_column is not None)
        if ways > 1 or not (ways or self.shares):
            raise ValueError(
                f"split_column is {self.split_column!r}, files are {self.files} and "
                f"validation_share is {self.validation_share}; expected one of a column, {{split}} "
                "in each file name and files by split to say which split a row is in, or shares"
            )

    def file_splits(self) -> list[str]:
        if isinstance(self.files, dict):
            return [*self.files, *self.aligned]
        split = self.split_column is not None or any("{split}" in name for name in self.files)
        return [*(self.split_names if split else ["train"]), *self.aligned]

    def read_files(self, split: str) -> Iterator[Pair]:
        if split in self.aligned:
            yield from self.read_aligned(self.aligned[split])
            return
        columns = [self.source_column, self.target_column]
        if self.split_column is not None:
            columns.append(self.split_column)
        for name in self.files[split] if isinstance(self.files, dict) else self.files:
            path = self.path(name.replace("{split}", self.split_names.get(split, split)))
            for (source, target, *row_split), _ in read_columns(path, columns, header=self.header):
                if not row_split or row_split[0] == self.split_names[split]:
                    yield source, target
