"""A folder of MIDI files, such as MAESTRO, as piano performances."""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from triptych.domains.music.midi import parse_midi
from triptych.domains.music.sources.base import (
    Piece,
    PieceSource,
    Split,
    check_shares,
    split_of,
    warn_of_skipped,
)
from triptych.domains.music.sources.midi_files import midi_contents, read_split_table, row_of
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.errors import UserError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class MidiFolder(PieceSource):
    """Folder of MIDI files as performance events; .tar.gz archives in it are read too.

    A .csv with the columns midi_filename and split, as MAESTRO has, decides the split; it lies next
    to the files or inside the archive. Without one the hash of a file's content decides, so that
    equal files never lie in two splits, names do not matter and a new file moves no other.
    """

    directory: str
    """Folder of .mid and .midi files at any depth, or a .tar.gz of them."""
    validation_share: float = 0.1
    """Share of the files held out for validation where no csv gives the split, 0 to 1."""
    test_share: float = 0.1
    """Share of the files held out for the test where no csv gives the split, 0 to 1."""
    limit: int | None = None
    """Largest number of files per split, the first by name; null for all."""

    tokenizer: ClassVar[EventTokenizer] = EventTokenizer()

    def __post_init__(self) -> None:
        """Raise ValueError for impossible shares and limits."""
        check_shares(self.validation_share, self.test_share)
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1 file or null, got {self.limit}")

    def load(self, split: Split) -> list[Piece]:
        """Read one split; files of other splits are not parsed."""
        table = read_split_table(self._root())
        listed: set[str] = set()  # rows of the csv whose files exist
        unlisted: list[str] = []
        n_files = 0

        def of_split() -> Iterator[tuple[str, bytes]]:
            nonlocal n_files
            for name, content in midi_contents(self._root()):
                n_files += 1
                row = None if table is None else row_of(name, table)
                if row is not None and table is not None:
                    listed.add(row)
                    found = table[row]
                elif table is not None:
                    unlisted.append(name)
                    continue
                else:
                    found = split_of(
                        hashlib.sha256(content).digest(),
                        validation_share=self.validation_share,
                        test_share=self.test_share,
                    )
                if found == split:
                    yield name, content

        pieces, skipped = self._parse(of_split(), self.limit)
        if unlisted:
            _LOG.warning(
                "%s: %d MIDI files are in no split, the csv does not name them; the first is %s",
                self.directory, len(unlisted), unlisted[0],
            )  # fmt: skip
        missing = sorted(set(table or ()) - listed)
        if missing:
            _LOG.warning(
                "%s: the csv names %d files that do not exist, the first is %s",
                self.directory, len(missing), missing[0],
            )  # fmt: skip
        if pieces:
            return pieces
        if skipped:
            reason = f"none of the {len(skipped)} MIDI files in it can be used; {skipped[0]}"
        elif table is not None:
            reason = f"the csv puts none of the {n_files} MIDI files into it"
        else:
            reason = (
                f"the hashes of the contents put none of the {n_files} MIDI files into it "
                f"(validation_share {self.validation_share:g}, test_share {self.test_share:g}); "
                "give more files, larger shares, or a csv with the columns midi_filename and split"
            )
        raise UserError(f"{self.directory} gives no piece for the split {split}: {reason}")

    def load_all(self) -> list[Piece]:
        """Read every file of the folder, without regard to a csv or the limit."""
        pieces, skipped = self._parse(midi_contents(self._root()), None)
        if not pieces:
            raise UserError(
                f"{self.directory} holds {len(skipped)} MIDI files and none that can be used"
                + (f"; {skipped[0]}" if skipped else "")
            )
        return pieces

    def _root(self) -> Path:
        root = Path(self.directory).expanduser()
        if not root.exists():
            raise UserError(f"MidiFolder directory: {self.directory} does not exist")
        return root

    def _parse(
        self, files: Iterable[tuple[str, bytes]], limit: int | None
    ) -> tuple[list[Piece], list[str]]:
        """Return the pieces of the first `limit` files, and why others could not be used."""
        pieces: list[Piece] = []
        skipped: list[str] = []
        for name, content in files:
            if limit is not None and len(pieces) >= limit:
                continue  # the caller counts all files
            try:
                notes = self.tokenizer.from_midi(parse_midi(content, name=name), name=name)
                self.tokenizer.encode(notes)  # refuses too long a piece
            except (UserError, ValueError) as error:
                skipped.append(str(error))
                continue
            pieces.append(Piece(name, notes))
        warn_of_skipped(self.directory, skipped, len(pieces) + len(skipped))
        return pieces, skipped
