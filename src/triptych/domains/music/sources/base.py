"""Interface of the sources of pieces, and what they share."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.errors import UserError
from triptych.files.splits import ALL
from triptych.types import Checked

SPLITS = ("train", "validation", "test")

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """One piece of a data set."""

    name: str
    content: Any
    """What the tokenizer encodes."""


class PieceSource(Checked, ABC):
    """Data set of pieces; subclasses are frozen dataclasses.

    Settings name a source by its class path. Pieces are split whole, before they are varied or cut
    into windows.
    """

    content: ClassVar[str | None] = None
    """Kind of the pieces' content, as `MusicTokenizer.content`; None for MIDI files, which every
    tokenizer reads."""
    trains_baselines: ClassVar[bool] = True
    """Whether scoring reads the training pieces too, for the baselines that count."""

    def check(self, tokenizer: MusicTokenizer) -> None:
        """Raise ValueError for a tokenizer that does not encode the content of the pieces."""
        if self.content not in (None, tokenizer.content):
            raise ValueError(
                f"model.tokenizer is {type(tokenizer).__name__}, which encodes "
                f"{tokenizer.content}, and data.source is {type(self).__name__}, which has "
                f"{self.content}; expected a tokenizer of these, such as ChoraleTokenizer"
            )

    def reads(self, folder: Path) -> bool:
        """Return whether the source reads a folder in place of its own; MIDI files take its place.

        True for a source with a setting `directory`; a format of its own narrows that.
        """
        return hasattr(self, "directory")

    @abstractmethod
    def stream(self, split: str, tokenizer: MusicTokenizer) -> Iterable[Piece]:
        """Return the pieces of one of the SPLITS, in an order that depends on the data alone.

        Raises UserError for missing files. A damaged piece among others is skipped, and a warning
        names it.
        """

    def load(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        """Return the pieces of a split, or of all for `all`; UserError for an unknown one."""
        splits = SPLITS if split == ALL else (split,)
        if splits[0] not in SPLITS:
            raise UserError(
                f"there is no split {split!r}; expected one of {', '.join(SPLITS)}, or all for a "
                "folder given in place of the model's own"
            )
        return [piece for name in splits for piece in self.stream(name, tokenizer)]
