"""Sources of text in files of a folder, and shares of the training items that are held out."""

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from triptych.errors import UserError
from triptych.files.leaks import TRAIN, Digests, Leak, find_leaks, warn_of_leaks
from triptych.files.splits import check_shares, split_by_hash
from triptych.types import Checked, FractionBelowOne

Item = TypeVar("Item")


def normalised(text: str) -> str:
    """Return a text without the differences that tell no two texts apart: case and spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


class Source(Checked, ABC, Generic[Item]):
    """Data of a run, by split; a kind is a frozen dataclass that settings name by class path."""

    holds: ClassVar[str]
    """What the data are, for errors."""
    compares: ClassVar[str] = "items"
    """What `compared` returns, for messages."""

    @abstractmethod
    def splits(self) -> list[str]:
        """Return the names of all splits: train, validation, test and any others."""

    @abstractmethod
    def read(self, split: str) -> Iterable[Item]:
        """Return the items of one of the splits, in an order that depends on the data alone."""

    def items(self, split: str) -> list[Item]:
        """Return all items of a split; UserError for an unknown or empty one, or damaged files."""
        if split not in self.splits():
            known = ", ".join(self.splits())
            raise UserError(f"the {self.holds} have no split {split!r}; they have {known}")
        return self.filled(split, list(self.read(split)))

    def filled(self, split: str, items: list[Item]) -> list[Item]:
        """Return the items of a split; UserError for none."""
        if not items:
            raise UserError(f"the {split} split has no {self.holds}")
        return items

    def train_and_validation(self) -> dict[str, list[Item]]:
        """Return the items of both splits, and of others that are read with them."""
        return {split: self.items(split) for split in (TRAIN, "validation")}

    def held_out(self) -> list[str]:
        """Return the splits whose items must not be training items; none of artificial data."""
        reads_files = getattr(self, "directory", None) is not None
        return [split for split in self.splits() if reads_files and split != TRAIN]

    def compared(self, item: Item) -> Iterable[str]:
        """Return the texts of an item that no other split may have."""
        return ()

    def digests(self, items: Iterable[Item]) -> Digests:
        """Return the digests of the texts of items that no other split may have."""
        return Digests.of(chain.from_iterable(map(self.compared, items)), normalised)

    def read_to_train(self) -> dict[str, list[Item]]:
        """Return the items of train and validation; log the leaks into held-out splits."""
        read = self.train_and_validation()
        warn_of_leaks(self.leaks(read))
        return read

    def leaks(self, read: Mapping[str, list[Item]]) -> list[Leak]:
        """Return the leaks from the training items into held-out splits.

        read: splits that have been read, train among them. One that cannot be read is left out.
        """
        if not (others := self.held_out()):
            return []
        digests = {split: self.digests(items) for split, items in read.items()}
        for split in others:
            with suppress(UserError):
                if split not in read:
                    digests[split] = self.digests(self.read(split))
        return find_leaks(digests, self.compares)

    def leak(self, split: str, items: Iterable[Item]) -> Leak | None:
        """Return the leak of training items into a split; None also where they cannot be read."""
        with suppress(UserError):
            if self.held_out():
                digests = {TRAIN: self.digests(self.items(TRAIN)), split: self.digests(items)}
                return next(iter(find_leaks(digests, self.compares)), None)
        return None


@dataclass(frozen=True)
class TextFilesOfSplits(Source[Item]):
    """Text in files of a folder, of which shares of the training items may be held out."""

    directory: str = "."
    """Folder that holds the files."""
    files: dict[str, list[str]] = field(default_factory=lambda: {"train": ["train.tsv"]})
    """Names of the files in the folder by split (train, validation, test, any other name),
    compressed or not; those of a split are read one after the other."""
    validation_share: FractionBelowOne = field(default=0.0, kw_only=True)
    """Share (0 to 1) of the training items that is held out for validation, chosen by a hash of
    their text; 0 if the files have a validation split."""
    test_share: FractionBelowOne = field(default=0.0, kw_only=True)
    """Share (0 to 1) of the training items that is held out for test, in the same way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.validation_share, self.test_share)
        for split in self.shares:
            if split in self.files:
                raise ValueError(
                    f"{split}_share is above 0, but the split {split} has its own files; expected "
                    "one of both"
                )

    @property
    def shares(self) -> dict[str, float]:
        """Shares above 0 by the split that is held out."""
        shares = {"validation": self.validation_share, "test": self.test_share}
        return {split: share for split, share in shares.items() if share}

    def splits(self) -> list[str]:
        return [*self.files, *self.shares]

    def path(self, name: str) -> Path:
        """Return the path of a file of the folder; `~` is the user's home."""
        return Path(self.directory).expanduser() / name

    def read(self, split: str) -> Iterator[Item]:
        """Return the items of a split; those with equal keys are in one."""
        shares = self.shares
        if not shares or split not in ("train", *shares):
            return self.read_files(split)
        every = self.read_files("train")
        return (item for item in every if split_by_hash(self.key(item).encode(), shares) == split)

    def train_and_validation(self) -> dict[str, list[Item]]:
        if not self.shares:
            return super().train_and_validation()
        drawn: dict[str, list[Item]] = {split: [] for split in (TRAIN, *self.shares)}
        for item in self.read_files(TRAIN):
            drawn[split_by_hash(self.key(item).encode(), self.shares)].append(item)
        return {
            split: self.filled(split, drawn[split]) if split in drawn else self.items(split)
            for split in dict.fromkeys([TRAIN, "validation", *self.shares])
        }

    @abstractmethod
    def read_files(self, split: str) -> Iterator[Item]:
        """Yield all items that the files hold for a split, with one file in memory at a time."""

    @abstractmethod
    def key(self, item: Item) -> str:
        """Return the text of an item whose hash decides its split."""
