"""Tables of a user: whether the first row names the columns, and what each column holds."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path, PurePath
from typing import Literal

from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.files.splits import SPLIT_WORDS
from triptych.text.tables import RECORDS, anki_head, plain_name, read_table, table_suffix

LOOKED_AT = 2000
"""Rows that are looked at."""
SIDES = ("src", "source", "tgt", "target", "trg")
"""Words for a side, source first, which name no language."""
NO_LANGUAGE = (
    *SIDES,
    *SPLIT_WORDS,
    "txt",
    "ref",
    "hyp",
    "out",
    "raw",
    "tok",
    "ids",
    "idx",
    "bpe",
    "spm",
    "doc",
    "csv",
    "tsv",
    "log",
    "all",
    "new",
    "old",
)
LANGUAGES = {
    "arabic": "ar", "chinese": "zh", "czech": "cs", "danish": "da", "dutch": "nl", "english": "en",
    "finnish": "fi", "french": "fr", "german": "de", "greek": "el", "hebrew": "he", "hindi": "hi",
    "hungarian": "hu", "indonesian": "id", "italian": "it", "japanese": "ja", "khmer": "km",
    "korean": "ko", "lao": "lo", "persian": "fa", "polish": "pl", "portuguese": "pt",
    "romanian": "ro", "russian": "ru", "spanish": "es", "swedish": "sv", "thai": "th",
    "turkish": "tr", "ukrainian": "uk", "vietnamese": "vi",
}  # fmt: skip
"""Name of a language in English -> its code."""
NAMES = {
    *SIDES, *LANGUAGES, "id", "index", "split", "text", "sentence", "sentence1", "sentence2",
    "label", "class", "category", "v1", "v2", "premise", "hypothesis", "title", "review", "intent",
    "sentiment", "message", "question", "answer", "translation", "content", "rating", "topic",
}  # fmt: skip
"""Words that name a column, besides codes of languages."""
LABELS = ("label", "labels", "class", "category", "sentiment", "intent", "topic", "v1", "target")
"""Names of columns with labels, the likeliest first."""
REPEATED = 3
"""Mean number of rows of a value, from which a column holds labels."""


@dataclass(frozen=True)
class Column:
    """Column of a table."""

    title: str
    """Its name in the header; empty without one."""
    name: str
    """As settings name it: by its title, or #1, #2, ... for its place."""
    cells: list[str]
    """Of the first rows."""

    @property
    def kind(self) -> Literal["text", "label", "number", "same", "empty"]:
        """What the cells are; `same`: nearly the same text in every row, such as a licence."""
        filled = [cell for cell in self.cells if cell]
        if len(filled) < 0.1 * len(self.cells) or not filled:
            return "empty"
        if sum(bool(re.fullmatch(r"[\d\s.,:/+-]+", cell)) for cell in filled) > 0.9 * len(filled):
            n_values = len(set(filled))
            return "number" if n_values * REPEATED > len(filled) else "label"
        n_values = len(set(filled))
        if n_values == 1 and len(filled) > 1:
            return "same"
        words = [[word for word in cell.split() if not re.search(r"\d", word)] for cell in filled]
        begins = Counter(tuple(cell.split()[:2]) for cell in filled).most_common(1)[0][1]
        shared = [len({*a} & {*b}) / max(1, len({*a} | {*b})) for a, b in pairwise(words)]
        many = begins > len(filled) / 2 and len(filled[0].split()) > 1
        if many and statistics.mean(shared or [0]) > 0.4:
            return "same"
        return "label" if n_values * REPEATED <= len(filled) else "text"

    @property
    def length(self) -> float:
        """Mean number of characters."""
        return statistics.mean(map(len, self.cells))

    @property
    def language(self) -> str | None:
        """Code of the language that the title names; None for none."""
        return LANGUAGES.get(self.title.lower()) or language_code(self.title)


@dataclass(frozen=True)
class Table:
    """First rows of a table."""

    path: Path
    header: bool
    """Whether the first row names the columns."""
    columns: list[Column]

    @classmethod
    def of(cls, path: Path) -> Table:
        """Look at a table; UserError as `read_table`, and for one without rows."""
        rows = [row.cells for row in islice(read_table(path), LOOKED_AT)]
        if not rows:
            raise UserError(f"{path} has no rows; expected rows with two columns or more")
        width = len(rows[0])
        others = [row for row in rows[1:] if len(row) == width]
        header = table_suffix(path.name) in RECORDS or names_columns(rows[0], others)
        titles = rows[0] if header else [""] * width
        cells = others if header else [rows[0], *others]
        columns = []
        for place, title in enumerate(titles):
            name = title if title and titles.count(title) == 1 else f"#{place + 1}"
            columns.append(Column(title, name, [row[place] for row in cells]))
        return cls(path, header, columns)

    def has(self, columns: Sequence[str]) -> bool:
        """Return whether the table has columns, as settings name them."""
        return {*columns} <= {column.name for column in self.columns}

    def kinds(self) -> str:
        """Return the columns with what they hold, for messages."""
        return ", ".join(f"{column.name} ({column.kind})" for column in self.columns)


def is_table(path: Path) -> bool:
    """Return whether a file is a table: by its name, else by as many tabs in its first lines."""
    if table_suffix(path.name):
        return True
    if PurePath(plain_name(path.name)).suffix not in ("", ".txt"):
        return False
    lines = read_lines(path)
    tabs = {line.count("\t") for line in lines[:LOOKED_AT] if line.strip()}
    return (len(tabs) == 1 and tabs != {0}) or bool(anki_head(lines))


def names_columns(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row of a table names its columns; others: further rows.

    It does where two cells are words for columns or one is and the others may be; where a cell is
    none of few values that the rest of its column has; or where single words stand above texts. A
    cell that comes again and again in its column is no name.
    """
    columns = zip(first, *others, strict=True)
    if any(cell and values.count(cell) >= REPEATED for cell, *values in columns):
        return False
    for cell in filter(None, first):
        if not re.fullmatch(r"_?[^\W\d_][\w .()/#:-]{0,39}", cell) or cell[-1] in ".!?:":
            return False
    words = [cell.lower() for cell in first if cell]
    known = sum(2 if word in NAMES else language_code(word) is not None for word in words)
    if known >= 2:
        return True
    for place, cell in enumerate(first):
        values = [row[place] for row in others]
        few = len({*values}) * REPEATED <= len(values)
        texts = values and statistics.median(len(value.split()) for value in values) >= 3
        above = texts and all(len(value.split()) > 1 for value in values[:5])
        if cell and ((few and cell not in values) or (above and len(cell.split()) == 1)):
            return True
    return False


def language_code(word: str) -> str | None:
    """Return a word that has the form of a language code, such as fr or zh-CN; None otherwise."""
    found = re.fullmatch(r"[a-z]{2,3}([-_]\w{2,8})?", word, re.IGNORECASE)
    primary = re.split(r"[-_]", word.lower())[0]
    return (
        word if found and primary not in NO_LANGUAGE and word.lower() not in NO_LANGUAGE else None
    )


def side_order(title: str) -> int:
    """Return the place of a word for a side; 0 for other words, which stay in their order."""
    return SIDES.index(title.lower()) if title.lower() in SIDES else 0


def columns_of_labels(table: Table) -> tuple[str, ...]:
    """Return the columns of the texts and of the label; none for all of them in this order.

    Texts that are short beside the longest one, such as names of users, are left out. Raises
    UserError for a table without two columns.
    """
    columns = table.columns
    named = [column for name in LABELS for column in columns if column.title.lower() == name]
    likely = [column for column in (columns[-1], *columns) if column.kind == "label"]
    label = (*named, *likely, columns[-1])[0]
    others = [column for column in columns if column is not label]
    if not others:
        raise UserError(f"{table.path} has one column; expected a text and a label in every row")
    texts = [column for column in others if column.kind == "text"]
    longest = max(texts or others, key=lambda column: column.length)
    texts = [column for column in texts or [longest] if 4 * column.length >= longest.length]
    chosen = (*texts, label)
    return () if chosen == (*columns,) else tuple(column.name for column in chosen)
