"""Plain text files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from triptych.domains.files import read_lines
from triptych.domains.language.sources.base import Document, TextSource
from triptych.domains.sources import check_shares, split_by_hash


@dataclass(frozen=True)
class TextFiles(TextSource):
    """UTF-8 text files with one sentence a line; blank lines separate documents."""

    directory: str = "../shared/data/multi30k"
    """Folder that holds the files."""
    files: dict[str, list[str]] = field(
        default_factory=lambda: {
            "train": ["train.en.gz"],
            "validation": ["val.en.gz"],
            "test": ["test_2016_flickr.en.gz"],
        }
    )
    """Names of the files in the folder by split (train, validation, test, any other name), .gz or
    not."""
    one_per_line: bool = False
    """Whether each line is a document of its own, for lines without a relation to each other."""
    validation_share: float = 0.0
    """Share (0 to 1) of the training documents that is held out for validation, chosen by the hash
    of the first sentence; 0 if the files have a validation split."""
    test_share: float = 0.0
    """Share (0 to 1) of the training documents that is held out for test, in the same way."""

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

    def read(self, split: str) -> list[Document]:
        if not self.shares or split not in ("train", *self.shares):
            return list(self._read_files(split))
        documents = self._read_files("train")
        shares = self.shares
        return [each for each in documents if split_by_hash(each[0].encode(), shares) == split]

    def _read_files(self, split: str) -> Iterator[Document]:
        """Yield the documents that the files hold for a split, of one file after the other."""
        for name in self.files[split]:
            document: Document = []
            for line in [*read_lines(Path(self.directory).expanduser() / name), ""]:
                if sentence := line.strip():
                    document.append(sentence)
                if document and (not sentence or self.one_per_line):
                    yield document
                    document = []
