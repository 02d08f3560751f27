"""Labelled text in tab-separated files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from triptych.domains.files import read_lines
from triptych.domains.language.sources.labelled import Labelled, LabelledSource
from triptych.domains.sources import check_shares, split_by_hash
from triptych.errors import UserError


@dataclass(frozen=True)
class TabSeparated(LabelledSource):
    """UTF-8 files with an example a line: its text or texts and, last, its label, between tabs.

    For multiple choice the texts are the context and the candidates, and the label is the number of
    the right candidate, from 1. Quotes have no meaning; blank lines are skipped.
    """

    directory: str = "."
    """Folder that holds the files."""
    files: dict[str, list[str]] = field(default_factory=lambda: {"train": ["train.tsv"]})
    """Names of the files in the folder by split (train, validation, test, any other name), .gz or
    not."""
    header: bool = False
    """Whether the first line of each file names the columns and is skipped."""
    validation_share: float = 0.0
    """Share (0 to 1) of the training examples that is held out for validation, chosen by the hash
    of the first text; 0 if the files have a validation split."""
    test_share: float = 0.0
    """Share (0 to 1) of the training examples that is held out for test, in the same way."""

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share)
        for split in self.shares:
            if split in self.files:
                raise ValueError(
                    f"{split}_share is above 0, but files names files of the split {split}; "
                    "expected one of both"
                )

    @property
    def shares(self) -> dict[str, float]:
        """Shares above 0 by the split that is held out."""
        shares = {"validation": self.validation_share, "test": self.test_share}
        return {split: share for split, share in shares.items() if share}

    def splits(self) -> list[str]:
        return [*self.files, *self.shares]

    def read(self, split: str) -> list[Labelled]:
        if not self.shares or split not in ("train", *self.shares):
            return list(self._read_files(split))
        shares, every = self.shares, self._read_files("train")
        return [each for each in every if split_by_hash(each.texts[0].encode(), shares) == split]

    def _read_files(self, split: str) -> Iterator[Labelled]:
        for name in self.files[split]:
            path = Path(self.directory).expanduser() / name
            for number, line in enumerate(read_lines(path), start=1):
                if line.strip() and not (self.header and number == 1):
                    where = f"{path}, line {number}"
                    *texts, label = read_cells(line, where, least=2)
                    yield Labelled(tuple(texts), label, where)


def read_cells(line: str, where: str, *, least: int) -> list[str]:
    """Return the stripped cells of a line; UserError for too few or an empty one."""
    cells = [cell.strip() for cell in line.split("\t")]
    if len(cells) < least or not all(cells):
        empty = "" if all(cells) else f", cell {cells.index('') + 1} is empty"
        wanted = "a text and a label" if least > 1 else "a text"
        raise UserError(
            f"{where} has {len(cells)} tab-separated cells{empty}; expected {wanted} or more, none "
            "of them empty"
        )
    return cells
