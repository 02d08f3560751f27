"""Interface of the sources of pieces, and what they share."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.sources import check_shares, split_by_hash

SPLITS = ("train", "validation", "test")

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """One piece of a data set."""

    name: str
    content: Any
    """What the source's tokenizer encodes."""


class PieceSource(ABC):
    """Data set of pieces for one tokenizer; subclasses are frozen dataclasses.

    Settings name a source by its class path. Pieces are split whole, before they are varied or cut
    into windows.
    """

    tokenizer: MusicTokenizer
    """Tokenizer of the pieces: a constant of the class, or a field where the user chooses it."""
    trains_baselines: ClassVar[bool] = True
    """Whether scoring reads the training pieces too, for the baselines that count."""

    @abstractmethod
    def load(self, split: str) -> list[Piece]:
        """Read the pieces of one of the SPLITS, in an order that depends on the data alone.

        Raises UserError for missing files. A damaged piece among others is skipped, and a warning
        names it.
        """

    def stream(self, split: str) -> Iterator[Piece]:
        """Yield the pieces of `load` one after the other.

        A source overrides it if it need not hold all pieces in memory.
        """
        yield from self.load(split)

    def load_all(self) -> list[Piece]:
        """Read the pieces of all splits."""
        return [piece for split in SPLITS for piece in self.load(split)]


class HashedSource(PieceSource):
    """Source whose pieces are split by a hash; its dataclass has the two shares as fields."""

    validation_share: float
    test_share: float

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share)

    def split_of(self, key: bytes) -> str:
        """Return the split of a key by its hash, equal on every machine and for any other keys."""
        return split_by_hash(key, {"test": self.test_share, "validation": self.validation_share})
