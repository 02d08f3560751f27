"""Where sentence pairs come from: numbers in words, line-aligned files, tab-separated files.

A corpus is a frozen dataclass chosen by its class path in YAML; a new one is a new subclass.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from triptych.domains.translation.held_out import Shares, check_shares, of_split, shares_of
from triptych.domains.translation.lines import BLANKS, check_file, read_lines
from triptych.domains.translation.score import bleu_tokenizer
from triptych.errors import UserError

Pair = tuple[str, str]


@dataclass(frozen=True)
class Corpus(ABC):
    """Sentence pairs of one language direction, by split."""

    source_language: str = "en"
    """Language code that is translated from, such as en, de, ko or zh."""
    target_language: str = "de"
    """Language code that is translated into; ko, zh and ja are scored by character."""

    def __post_init__(self) -> None:
        for name in ("source_language", "target_language"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; expected a language code such as en or ko.")

    @abstractmethod
    def splits(self) -> list[str]:
        """The names that `pairs` knows: train, validation, test and whatever else is there."""

    @abstractmethod
    def pairs(self, split: str) -> list[Pair]:
        """Every (source, target) pair of a split in its order, stripped; empty sides stay.

        Raises UserError for an unknown split, a missing or broken file and unequal line counts.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise UserError where something that `pairs` needs is missing; takes no time."""

    def bleu_tokenizer(self) -> str:
        """How sacrebleu cuts the target side for BLEU: `char` or its default `13a`."""
        return bleu_tokenizer(self.target_language)

    def check_split(self, split: str) -> None:
        """Raise UserError where the corpus has no split of this name."""
        if split not in self.splits():
            raise UserError(
                f"the corpus has no split {split!r}; it has {', '.join(self.splits())}."
            )


@dataclass(frozen=True)
class ParallelText(Corpus):
    """Two text files per split, one sentence a line; line n of both is the same sentence."""

    directory: str = "../shared/data/multi30k"
    """Folder that holds the files."""
    files: dict[str, list[str]] = field(
        default_factory=lambda: {
            "train": ["train.{language}.gz"],
            "validation": ["val.{language}.gz"],
            "test": ["test_2016_flickr.{language}.gz"],
        }
    )
    """For each split (train, validation, test, any other name) its files in the folder, .gz or not:
    a name with {language} for the language code, or "source name | target name"."""
    validation_share: float = 0.0
    """Share of the train files' pairs that is held out for validation, by the hash of the source
    sentence, where `files` names no validation; 0 for none."""
    test_share: float = 0.0
    """The same for test."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_aligned("files", self.files)
        check_shares(self.shares, self.files)

    @property
    def shares(self) -> Shares:
        """The splits that are taken out of the train files."""
        return shares_of(self.validation_share, self.test_share)

    def splits(self) -> list[str]:
        """The keys of `files`, and what is held out of train."""
        return [*self.files, *self.shares]

    def paths(self, split: str) -> list[tuple[Path, Path]]:
        """The (source, target) files of a split."""
        self.check_split(split)
        folder = Path(self.directory).expanduser()
        found = []
        for name in self.files["train" if split in self.shares else split]:
            source, target = name.split(" | ") if " | " in name else (name, name)
            found.append(
                (
                    folder / source.replace("{language}", self.source_language),
                    folder / target.replace("{language}", self.target_language),
                )
            )
        return found

    def check(self) -> None:
        """Raise UserError where a file of any split is missing."""
        check_folder(self.directory)
        for split in self.files:
            for source, target in self.paths(split):
                check_file(source)
                check_file(target)

    def pairs(self, split: str) -> list[Pair]:
        """All pairs of the split's files, one file after the other."""
        found: list[Pair] = []
        for source, target in self.paths(split):
            sources, targets = read_lines(source), read_lines(target)
            if len(sources) != len(targets):
                raise UserError(
                    f"{source} has {len(sources):,} lines and {target} has {len(targets):,}; "
                    "line-aligned files have the same number."
                )
            found.extend(zip(sources, targets, strict=True))
        return of_split(found, split, self.shares)


@dataclass(frozen=True)
class TabSeparated(Corpus):
    """Files of rows whose columns are separated by tabs, with a header row; quotes mean nothing."""

    directory: str = "../shared/data/ko-en"
    """Folder that holds the files."""
    files: list[str] = field(
        default_factory=lambda: ["tatoeba/tatoeba-ko-en.tsv.gz", "kss/kss-ko-en.tsv.gz"]
    )
    """File names in the folder, .gz or not, read one after the other; {split} in a name stands for
    the split's own name, for data with one file per split."""
    source_column: str = "ko"
    """Header of the column that is translated from."""
    target_column: str = "en"
    """Header of the column that is translated into."""
    split_column: str | None = "split"
    """Header of the column that says which split a row belongs to; null where each split has its
    own file."""
    split_names: dict[str, str] = field(
        default_factory=lambda: {"train": "train", "validation": "dev", "test": "test"}
    )
    """What each split is called in the split column or in the file names."""
    aligned: dict[str, list[str]] = field(default_factory=dict)
    """Further splits that are line-aligned text files in the folder, named as in
    `ParallelText.files`: a test set from elsewhere, for example."""
    validation_share: float = 0.0
    """Share of all rows that is held out for validation, by the hash of the source sentence, where
    neither a column nor a file name says the split; 0 for none."""
    test_share: float = 0.0
    """The same for test."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.shares, self.aligned)
        if self.shares and (
            self.split_column is not None or any("{split}" in name for name in self.files)
        ):
            raise ValueError(
                "validation_share and test_share are of rows without a split, but split_column is "
                f"{self.split_column!r} and files are {self.files}; expected split_column null and "
                "file names without {split}."
            )
        for split in self.aligned:
            if split in self.split_names:
                raise ValueError(f"aligned and split_names both say where the split {split} is.")
        check_aligned("aligned", self.aligned)
        if not self.files:
            raise ValueError("files is an empty list; name at least one tab-separated file.")
        for name in self.files:
            if self.split_column is None and "{split}" not in name and not self.validation_share:
                raise ValueError(
                    f"split_column is null and the file name {name!r} has no {{split}}: nothing "
                    "says which rows are for training and which are held out; to hold some out by "
                    "hash set validation_share above 0."
                )

    def _text(self) -> ParallelText:
        """The corpus of the splits that are line-aligned files."""
        languages = (self.source_language, self.target_language)
        return ParallelText(*languages, directory=self.directory, files=self.aligned)

    @property
    def shares(self) -> Shares:
        """The splits that are taken out of all rows by hash."""
        return shares_of(self.validation_share, self.test_share)

    def splits(self) -> list[str]:
        """The keys of `split_names`, or train and what is held out, and the keys of `aligned`."""
        return [*(("train", *self.shares) if self.shares else self.split_names), *self.aligned]

    def paths(self, split: str) -> list[Path]:
        """The files that hold rows of a split of `split_names`."""
        self.check_split(split)
        own = "" if self.shares else self.split_names[split]
        names = (name.replace("{split}", own) for name in self.files)
        return [Path(self.directory).expanduser() / name for name in names]

    def check(self) -> None:
        """Raise UserError where a file of any split is missing."""
        check_folder(self.directory)
        for split in ("train",) if self.shares else self.split_names:
            for path in self.paths(split):
                check_file(path)
        self._text().check()

    def pairs(self, split: str) -> list[Pair]:
        """All pairs of the split, file after file, row after row."""
        if split in self.aligned:
            return self._text().pairs(split)
        wanted = [self.source_column, self.target_column]
        if self.split_column is not None:
            wanted.append(self.split_column)
        found: list[Pair] = []
        for path in self.paths(split):
            for source, target, *split_name in read_columns(path, wanted):
                if not split_name or split_name[0] == self.split_names[split]:
                    found.append((source, target))
        return of_split(found, split, self.shares)


def read_columns(path: Path, wanted: list[str]) -> list[list[str]]:
    """The cells of the wanted columns, row by row, stripped.

    Raises UserError where a column is missing or a row has another number of cells than the header.
    """
    # The ends of a row are not stripped before it is cut: an empty last cell is a cell.
    lines = read_lines(path, strip=False)
    header = [cell.strip(BLANKS) for cell in lines[0].split("\t")] if lines else []
    for name in wanted:
        if name not in header:
            raise UserError(
                f"{path} has no column {name!r}; its header has {', '.join(header) or 'nothing'}."
            )
    places = [header.index(name) for name in wanted]
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split("\t")
        if len(cells) != len(header):
            raise UserError(
                f"line {number} of {path} has {len(cells)} tab-separated cells and the header has "
                f"{len(header)}."
            )
        rows.append([cells[place].strip(BLANKS) for place in places])
    return rows


def check_aligned(setting: str, files: dict[str, list[str]]) -> None:
    """Raise ValueError where the setting's file names cannot be those of two aligned files."""
    for split, names in files.items():
        if not names:
            raise ValueError(f"{setting}.{split} is an empty list; name a file or leave it out.")
        for name in names:
            parts = name.count(" | ") + 1
            if parts > 2 or (parts == 1 and "{language}" not in name):
                raise ValueError(
                    f"{setting}.{split} names {name!r}; expected a name with {{language}} in it or "
                    "two names with ' | ' between them."
                )


def check_folder(directory: str) -> None:
    """Raise UserError where `directory` is not a folder."""
    if not Path(directory).expanduser().is_dir():
        raise UserError(
            f"the folder {directory} does not exist; expected the folder that holds the text files "
            "(the setting data.source.directory)."
        )
