"""Interface of the sources of labelled text."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from triptych.domains.language.sources.base import Source
from triptych.errors import UserError


class Labelled(NamedTuple):
    """Texts of an example and its label."""

    texts: tuple[str, ...]
    """One text; two texts; or a context and its candidates."""
    label: str
    """Name of the class; of candidates the number of the right one, from 1."""
    where: str = ""
    """Place of the example for errors, such as `train.tsv, line 3`; empty for none."""


class LabelledSource(Source):
    """Examples with labels."""

    @abstractmethod
    def read(self, split: str) -> list[Labelled]:
        """Return the examples of one of the splits, in an order that depends on the data alone."""

    def examples(self, split: str) -> list[Labelled]:
        """Return the examples of a split; UserError for an unknown or empty split."""
        self.check_split(split)
        examples = self.read(split)
        if not examples:
            raise UserError(f"the {split} split has no labelled text; expected a line or more")
        return examples
