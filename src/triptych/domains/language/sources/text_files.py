"""Plain text files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from triptych.domains.language.sources.base import Document, TextSource
from triptych.files.results import read_lines
from triptych.text.files import TextFilesOfSplits


@dataclass(frozen=True)
class TextFiles(TextFilesOfSplits[Document], TextSource):
    """UTF-8 text files with one sentence a line; blank lines separate documents.

    The hash of a document's first sentence decides whether it is held out.
    """

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

    def file_splits(self) -> list[str]:
        return list(self.files)

    def key(self, item: Document) -> str:
        return item[0]

    def read(self, split: str) -> list[Document]:
        return list(self.items(split))

    def read_files(self, split: str) -> Iterator[Document]:
        for name in self.files[split]:
            document: Document = []
            for line in [*read_lines(self.path(name)), ""]:
                if sentence := line.strip():
                    document.append(sentence)
                if document and (not sentence or self.one_per_line):
                    yield document
                    document = []
