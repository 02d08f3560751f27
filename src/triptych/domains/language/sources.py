"""Sources of text: documents of sentences, and examples with labels, in files of a folder."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.text import files
from triptych.text.files import TextFilesOfSplits
from triptych.text.tables import read_columns

Document: TypeAlias = list[str]
"""Sentences of a document in order; none of them is empty."""


class Source(files.Source[Any]):
    """Text of a run. A task says which kind it reads, such as `TextSource`."""


def in_memory(source: Source, read: Mapping[str, list[Any]] | None = None) -> Source:
    """Return a source that keeps the items of its splits, each read once; read: some of them."""
    copied, kept = copy.copy(source), dict(read or {})

    def items(split: str) -> list[Any]:
        if split not in kept:
            kept[split] = list(source.read(split))
        return kept[split]

    object.__setattr__(copied, "read", items)  # of a frozen dataclass
    return copied


class TextSource(Source):
    """Documents of plain text."""

    holds = "documents"
    compares = "lines"

    def compared(self, item: Document) -> Document:
        return item


class Labelled(NamedTuple):
    """Texts of an example and its label."""

    texts: tuple[str, ...]
    """One text; two texts; or a context and its candidates."""
    label: str = ""
    """Name of the class; of candidates the number of the right one, from 1."""
    where: str = ""
    """Place of the example for errors, such as `train.tsv, line 3`; empty for none."""


class LabelledSource(Source):
    """Examples with labels."""

    holds = compares = "labelled texts"

    def compared(self, item: Labelled) -> tuple[str, ...]:
        return ("\t".join(item.texts),)


@dataclass(frozen=True)
class TextFiles(TextFilesOfSplits[Document], TextSource):
    """UTF-8 text files with one sentence a line; blank lines separate documents.

    The hash of a document's first sentence decides whether it is held out.
    """

    directory: str = "../shared/data/multi30k"
    files: dict[str, list[str]] = field(
        default_factory=lambda: {
            "train": ["train.en.gz"],
            "validation": ["val.en.gz"],
            "test": ["test_2016_flickr.en.gz"],
        }
    )
    one_per_line: bool = False
    """Whether each line is a document of its own, for lines without a relation to each other."""

    def key(self, item: Document) -> str:
        return item[0]

    def read_files(self, split: str) -> Iterator[Document]:
        for name in self.files[split]:
            document: Document = []
            for line in [*read_lines(self.path(name)), ""]:
                if sentence := line.strip():
                    document.append(sentence)
                if document and (not sentence or self.one_per_line):
                    yield document
                    document = []


@dataclass(frozen=True)
class TabSeparated(TextFilesOfSplits[Labelled], LabelledSource):
    """Tables with an example a row: its text or texts and its label.

    Tab- or comma-separated files, lines of JSON or Parquet, compressed or not. For multiple choice
    the texts are the context and the candidates, and the label is the number of the right
    candidate, from 1. The hash of the first text decides whether an example is held out.
    """

    header: bool = False
    """Whether the first line of each file names the columns."""
    columns: tuple[str, ...] = ()
    """Columns of the text or texts and, last, of the label: their names in the header, or #1, #2,
    ... for their places; empty for all columns."""

    def key(self, item: Labelled) -> str:
        return item.texts[0]

    def read_files(self, split: str) -> Iterator[Labelled]:
        for name in self.files[split]:
            path = self.path(name)
            rows = read_columns(path, self.columns, header=self.header, filled=True)
            for row in rows:
                *texts, label = row.cells
                if not texts:
                    raise UserError(f"{row.where} has one cell; expected a text and a label")
                yield Labelled(tuple(texts), label, row.where)
