"""Corpora of sentence pairs: line-aligned text files and tab-separated tables.

A corpus is a frozen dataclass that YAML names by its class path; a new kind is a new subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from triptych.domains.sources import split_by_hash
from triptych.domains.translation.metrics import bleu_tokenizer
from triptych.domains.translation.text_files import (
    check_file,
    check_folder,
    read_columns,
    read_lines,
)
from triptych.errors import UserError

Pair = tuple[str, str]
"""Source sentence and target sentence."""

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Corpus(ABC):
    """Sentence pairs of one translation direction, by split."""

    source_language: str = "en"
    """Language code of the source, such as en, de, ko or zh."""
    target_language: str = "de"
    """Language code of the target; BLEU of ko, zh and ja counts characters."""

    def __post_init__(self) -> None:
        for name in ("source_language", "target_language"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; expected a language code such as en or ko")

    @abstractmethod
    def splits(self) -> list[str]:
        """Return the names of all splits: train, validation, test and any others."""

    @abstractmethod
    def pairs(self, split: str) -> list[Pair]:
        """Return all pairs of a split in order, stripped; pairs with an empty side are included.

        Raises UserError for an unknown split, a missing or damaged file and unequal line counts.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise UserError if a file or a package that `pairs` needs is missing; reads no data."""

    def bleu_tokenizer(self) -> str:
        """Return the sacrebleu tokenizer for BLEU: "char", or its default "13a"."""
        return bleu_tokenizer(self.target_language)

    def check_split(self, split: str) -> None:
        """Raise UserError if the corpus has no split of this name."""
        if split not in self.splits():
            raise UserError(f"the corpus has no split {split!r}; it has {', '.join(self.splits())}")


@dataclass(frozen=True)
class FileCorpus(Corpus):
    """Corpus in files of a folder, which may hold out shares of its training pairs."""

    directory: str = "."
    """Folder that holds the files."""
    validation_share: float = 0.0
    """Share (0 to 1) of the training pairs that is held out for validation, chosen by the hash of
    the source sentence; 0 if the files have a validation split."""
    test_share: float = 0.0
    """Share (0 to 1) of the training pairs that is held out for test, in the same way."""

    @property
    def folder(self) -> Path:
        """The folder, with the user's home in place of `~`."""
        return Path(self.directory).expanduser()

    @property
    def shares(self) -> dict[str, float]:
        """Shares other than 0 by the split that is held out."""
        shares = {"validation": self.validation_share, "test": self.test_share}
        return {split: share for split, share in shares.items() if share}

    def check_shares(self, files: Iterable[str]) -> None:
        """Raise ValueError if no training pair is left or a held-out split is among `files`."""
        for split, share in self.shares.items():
            if not 0 <= share < 1:
                raise ValueError(f"{split}_share is {share}; expected 0 to below 1")
            if split in files:
                raise ValueError(
                    f"{split}_share is {share}, but the split {split} is among the files too; "
                    "expected one of both"
                )
        if sum(self.shares.values()) >= 1:
            raise ValueError("validation_share and test_share leave no pair for training")

    def select(self, pairs: list[Pair], split: str) -> list[Pair]:
        """Return the pairs of a split: those whose source sentence hashes into its share.

        All pairs of one source sentence are in one split, so no held-out source is trained on; the
        same target may occur in two splits. Splits with their own files are returned unchanged.
        """
        shares = self.shares
        if not shares or (split != "train" and split not in shares):
            return pairs
        return [
            pair
            for pair in pairs
            if split_by_hash(pair[0].encode("utf-8", errors="surrogatepass"), shares) == split
        ]


@dataclass(frozen=True)
class ParallelText(FileCorpus):
    """Two text files per split, one sentence per line; line n of both is the same sentence."""

    directory: str = "../shared/data/multi30k"
    """Folder that holds the files."""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_aligned("files", self.files)
        self.check_shares(self.files)

    def splits(self) -> list[str]:
        """Return the keys of `files` and the splits held out of train."""
        return [*self.files, *self.shares]

    def paths(self, split: str) -> list[tuple[Path, Path]]:
        """Return the (source, target) files that hold a split's pairs."""
        self.check_split(split)
        found = []
        for name in self.files["train" if split in self.shares else split]:
            source, target = name.split(" | ") if " | " in name else (name, name)
            found.append(
                (
                    self.folder / source.replace("{language}", self.source_language),
                    self.folder / target.replace("{language}", self.target_language),
                )
            )
        return found

    def check(self) -> None:
        """Raise UserError if a file of any split is missing."""
        check_folder(self.directory)
        for split in self.files:
            for source, target in self.paths(split):
                check_file(source)
                check_file(target)

    def pairs(self, split: str) -> list[Pair]:
        """Return the pairs of the split's files, one file after the other."""
        found: list[Pair] = []
        for source, target in self.paths(split):
            sources, targets = read_lines(source), read_lines(target)
            if len(sources) != len(targets):
                raise UserError(
                    f"{source} has {len(sources):,} lines and {target} has {len(targets):,}; "
                    "line-aligned files have the same number"
                )
            found.extend(zip(sources, targets, strict=True))
        return self.select(found, split)


@dataclass(frozen=True)
class TabSeparated(FileCorpus):
    """Tab-separated files with a header row; quotes have no meaning."""

    directory: str = "../shared/data/ko-en"
    """Folder that holds the files."""
    files: list[str] = field(
        default_factory=lambda: ["tatoeba/tatoeba-ko-en.tsv.gz", "kss/kss-ko-en.tsv.gz"]
    )
    """Names of the files in the folder, .gz or not, read one after the other; {split} in a name
    stands for the split's name in `split_names`, for data with one file per split."""
    source_column: str = "ko"
    """Header of the column with the source sentences."""
    target_column: str = "en"
    """Header of the column with the target sentences."""
    split_column: str | None = "split"
    """Header of the column with each row's split; null if each split has its own file."""
    split_names: dict[str, str] = field(
        default_factory=lambda: {"train": "train", "validation": "dev", "test": "test"}
    )
    """Name of each split in the split column or in the file names."""
    aligned: dict[str, list[str]] = field(default_factory=dict)
    """Additional splits in line-aligned text files of the folder, with names as in
    `ParallelText.files`: a test set from elsewhere, for example."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shares(self.aligned)
        by_file_name = any("{split}" in name for name in self.files)
        if self.shares and (self.split_column is not None or by_file_name):
            raise ValueError(
                "validation_share and test_share are of rows without a split, but split_column is "
                f"{self.split_column!r} and files are {self.files}; expected split_column null and "
                "file names without {split}"
            )
        for split in self.aligned:
            if split in self.split_names:
                raise ValueError(f"the split {split} is in both aligned and split_names")
        check_aligned("aligned", self.aligned)
        if not self.files:
            raise ValueError("files is an empty list; name at least one tab-separated file")
        for name in self.files:
            if self.split_column is None and "{split}" not in name and not self.validation_share:
                raise ValueError(
                    f"split_column is null and the file name {name!r} has no {{split}}, so no row "
                    "has a split; to hold some out by hash set validation_share above 0"
                )

    @property
    def aligned_text(self) -> ParallelText:
        """Corpus of the splits in `aligned`."""
        languages = (self.source_language, self.target_language)
        return ParallelText(*languages, directory=self.directory, files=self.aligned)

    def splits(self) -> list[str]:
        """Return the splits of the tables and those of `aligned`."""
        return [*(("train", *self.shares) if self.shares else self.split_names), *self.aligned]

    def paths(self, split: str) -> list[Path]:
        """Return the tables that hold rows of a split."""
        self.check_split(split)
        own = "" if self.shares else self.split_names[split]
        names = (name.replace("{split}", own) for name in self.files)
        return [self.folder / name for name in names]

    def check(self) -> None:
        """Raise UserError if a file of any split is missing."""
        check_folder(self.directory)
        for split in ("train",) if self.shares else self.split_names:
            for path in self.paths(split):
                check_file(path)
        self.aligned_text.check()

    def pairs(self, split: str) -> list[Pair]:
        """Return the pairs of the split, file after file, row after row."""
        if split in self.aligned:
            return self.aligned_text.pairs(split)
        columns = [self.source_column, self.target_column]
        if self.split_column is not None:
            columns.append(self.split_column)
        found: list[Pair] = []
        for path in self.paths(split):
            for source, target, *split_name in read_columns(path, columns):
                if not split_name or split_name[0] == self.split_names[split]:
                    found.append((source, target))
        return self.select(found, split)


def check_aligned(setting: str, files: dict[str, list[str]]) -> None:
    """Raise ValueError if the setting's file names cannot be those of two aligned files."""
    for split, names in files.items():
        if not names:
            raise ValueError(f"{setting}.{split} is an empty list; name a file or leave it out")
        for name in names:
            parts = name.count(" | ") + 1
            if parts > 2 or (parts == 1 and "{language}" not in name):
                raise ValueError(
                    f"{setting}.{split} names {name!r}; expected a name with {{language}} in it or "
                    "two names with ' | ' between them"
                )
