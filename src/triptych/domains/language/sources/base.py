"""Interfaces of the sources of text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

from triptych.errors import UserError
from triptych.types import Checked

Document: TypeAlias = list[str]
"""Sentences of a document in order; none of them is empty."""


class Source(Checked, ABC):
    """Data of a run, by split; subclasses are frozen dataclasses that settings name by class path.

    A task says which kind it reads, such as `TextSource`.
    """

    @abstractmethod
    def splits(self) -> list[str]:
        """Return the names of all splits: train, validation, test and any others."""

    def check_split(self, split: str) -> None:
        """Raise UserError for a split that the source does not have."""
        if split not in self.splits():
            raise UserError(f"the text has no split {split!r}; it has {', '.join(self.splits())}")


class TextSource(Source):
    """Documents of plain text."""

    @abstractmethod
    def read(self, split: str) -> list[Document]:
        """Return the documents of one of the splits, in an order that depends on the data alone."""

    def documents(self, split: str) -> list[Document]:
        """Return the documents of a split; UserError for an unknown or empty split."""
        self.check_split(split)
        documents = self.read(split)
        if not documents:
            raise UserError(f"the {split} split has no text; expected a sentence or more")
        return documents
