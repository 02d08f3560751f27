"""Labelled text in tab-separated files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from triptych.domains.language.sources.labelled import Labelled, LabelledSource
from triptych.errors import UserError
from triptych.text.files import Row, TextFilesOfSplits, read_table


@dataclass(frozen=True)
class TabSeparated(TextFilesOfSplits[Labelled], LabelledSource):
    """UTF-8 files with an example a line: its text or texts and, last, its label, between tabs.

    For multiple choice the texts are the context and the candidates, and the label is the number of
    the right candidate, from 1. Quotes have no meaning; blank lines are skipped. The hash of the
    first text decides whether an example is held out.
    """

    files: dict[str, list[str]] = field(default_factory=lambda: {"train": ["train.tsv"]})
    """Names of the files in the folder by split (train, validation, test, any other name), .gz or
    not."""
    header: bool = False
    """Whether the first line of each file names the columns and is skipped."""

    def file_splits(self) -> list[str]:
        return list(self.files)

    def key(self, item: Labelled) -> str:
        return item.texts[0]

    def read(self, split: str) -> list[Labelled]:
        return list(self.items(split))

    def read_files(self, split: str) -> Iterator[Labelled]:
        for name in self.files[split]:
            rows = read_table(self.path(name))
            if self.header:
                next(rows, None)
            for row in rows:
                *texts, label = filled(row, least=2)
                yield Labelled(tuple(texts), label, row.where)


def filled(row: Row, *, least: int) -> list[str]:
    """Return the cells of a row; UserError for too few or an empty one."""
    if len(row.cells) < least or not all(row.cells):
        empty = "" if all(row.cells) else f", cell {row.cells.index('') + 1} is empty"
        wanted = "a text and a label" if least > 1 else "a text"
        raise UserError(
            f"{row.where} has {len(row.cells)} tab-separated cells{empty}; expected {wanted} or "
            "more, none of them empty"
        )
    return row.cells
