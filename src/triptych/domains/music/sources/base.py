"""Interface of the sources of pieces, and what they share."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.sources import split_by_hash
from triptych.errors import UserError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

_LOG = logging.getLogger(__name__)


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

    tokenizer: ClassVar[MusicTokenizer]
    """Tokenizer of the pieces."""

    @abstractmethod
    def load(self, split: Split) -> list[Piece]:
        """Read the pieces of one split, in an order that depends on the data alone.

        Raises UserError for missing files and for a split without pieces. A damaged piece among
        others is skipped, and a warning names it.
        """

    def load_all(self) -> list[Piece]:
        """Read the pieces of all splits."""
        return [piece for split in SPLITS for piece in self.load(split)]


def check_shares(validation_share: float, test_share: float) -> None:
    """Raise ValueError for shares that leave nothing to train on."""
    if not (0 < validation_share < 1 and 0 <= test_share < 1 - validation_share):
        raise ValueError(
            f"validation_share {validation_share} and test_share {test_share} must be shares that "
            "leave pieces to train on"
        )


def split_of(key: bytes, *, validation_share: float, test_share: float) -> Split:
    """Return the split of a key by its hash, equal on every machine and for any other pieces."""
    return cast(Split, split_by_hash(key, {"test": test_share, "validation": validation_share}))


def warn_of_skipped(source: str, skipped: list[str], n_files: int) -> None:
    """Log the number of files that could not be used, and the reasons for the first five."""
    if skipped:
        reasons = " ".join(skipped[:5]) + (" ..." if len(skipped) > 5 else "")
        _LOG.warning("%s: skipped %d of %d files: %s", source, len(skipped), n_files, reasons)


def require_pieces(pieces: list[Piece], split: Split, source: str) -> list[Piece]:
    """Return the pieces; raises UserError where there are none."""
    if not pieces:
        raise UserError(f"{source} gives no piece for the split {split}")
    return pieces
