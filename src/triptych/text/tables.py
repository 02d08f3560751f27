"""Tables of text: tab-separated and comma-separated files, lines of JSON, Parquet."""

import csv
import functools
import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from triptych.errors import UserError, library
from triptych.files import lines
from triptych.files.folders import warn_once
from triptych.files.lines import read_content, read_lines

SPACES = " \t\r"
"""Characters stripped from both ends of a line. `str.strip` without arguments would also remove
U+2028, U+0085 and the no-break space, which are part of the text."""
RECORDS = (".jsonl", ".ndjson", ".json", ".parquet")
"""Ends of the names of tables in which every row names its columns."""
SUFFIXES = (".tsv", ".tab", ".csv", *RECORDS)
"""Ends of the names of tables, before those of compressed files."""

ANKI = re.compile(
    r"#(separator|html|columns|notetype|deck|tags|guid|if matches)(?: column)?:(.*)", re.IGNORECASE
)
"""Lines about the table at the head of the notes that Anki exports as plain text."""
SEPARATORS = {"comma": ",", "semicolon": ";", "pipe": "|"}


class Row(NamedTuple):
    """Line of a table."""

    cells: list[str]
    """Stripped texts; line ends inside a cell are spaces."""
    where: str
    """Place for errors, such as `train.tsv, line 3`."""


def table_suffix(name: str) -> str:
    """Return which of SUFFIXES the name of a file has, compressed or not; empty for none."""
    return next((end for end in SUFFIXES if plain_name(name).lower().endswith(end)), "")


def plain_name(name: str) -> str:
    """Return the name of a file without the end that says how it is compressed."""
    return functools.reduce(str.removesuffix, lines.SUFFIXES, name)


def row_of(line: str, where: str) -> Row:
    """Return the cells between tabs of a line; quotes have no meaning."""
    return Row([cell.strip(SPACES) for cell in line.split("\t")], where)


def read_table(path: Path) -> Iterator[Row]:
    """Yield the rows that are not blank, of records their names first; UserError for damage."""
    suffix = table_suffix(path.name)
    if suffix in RECORDS:
        records = _records(path, suffix)
        names = list(dict.fromkeys(chain.from_iterable(records)))
        yield Row(names, str(path))
        for number, record in enumerate(records, start=1):
            yield Row([record.get(name, "") for name in names], f"{path}, row {number}")
        return
    texts = read_lines(path)
    head = anki_head(texts)
    about = {key.lower(): value for key, value in head}
    names = [about["columns"]] if "columns" in about else []
    texts, before = [*names, *texts[len(head) :]], len(head) - len(names)
    separator = max("\t,;|", key=texts[0].count) if suffix == ".csv" and texts else "\t"
    separator = SEPARATORS.get(about.get("separator", "").lower(), separator)
    if separator == "\t":
        for number, line in enumerate(texts, start=before + 1):
            if line.strip(" "):
                yield row_of(line, f"{path}, line {number}")
        return
    rows = csv.reader((f"{line}\n" for line in texts), delimiter=separator)
    try:
        for cells in filter(None, rows):
            where = f"{path}, line {rows.line_num + before}"
            yield Row([_one_line(cell) for cell in cells], where)
    except csv.Error as error:
        where = f"{path}, line {rows.line_num + before}"
        raise UserError(f"{where}: {error}; a quote may be open before it") from None


def anki_head(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return what the first lines of Anki's notes say about them; none of another table."""
    found = takewhile(bool, map(ANKI.fullmatch, texts))
    return [(line[1], line[2]) for line in found if line]


def _one_line(cell: str) -> str:
    return " ".join(part.strip(SPACES) for part in cell.split("\n")).strip(SPACES)


def _records(path: Path, suffix: str) -> list[dict[str, str]]:
    """Return the rows of a file of records as text by the name of the column."""
    try:
        if suffix == ".parquet":
            parquet = library("pyarrow.parquet", path, "tables")
            found = parquet.read_table(io.BytesIO(read_content(path))).to_pylist()
        else:
            texts = read_lines(path)
            whole = suffix == ".json" and texts and texts[0].lstrip().startswith("[")
            found = json.loads("\n".join(texts)) if whole else _json_lines(texts)
        return [dict(_flat(record)) for record in found]
    except (ValueError, AttributeError) as error:
        raise UserError(
            f"{path} is no table: {error}; expected rows with names of columns and their values"
        ) from None


def _json_lines(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, text in enumerate(texts, start=1):
        try:
            if text.strip():
                yield json.loads(text)
        except ValueError as error:
            raise ValueError(f"line {number} is no JSON ({error})") from None


def _flat(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and texts; a record inside, as of translations, adds its own names."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield name, "" if value is None else _one_line(text)


def read_columns(
    path: Path, columns: Sequence[str] = (), *, header: bool = True, filled: bool = False
) -> Iterator[Row]:
    """Yield the cells of some columns, or of all, of a table row by row.

    columns: names in the first row, or #1, #2, ... header: whether the first row has names.
    filled: whether a row needs text in all of these cells. A row without it, or with another number
    of cells than the first one, is left out; a message counts these rows. Raises UserError for a
    missing column, and where half of the rows are left out or more.
    """
    rows = read_table(path)
    first = next(rows, Row([], ""))
    names = first.cells if header or table_suffix(path.name) in RECORDS else []
    places = [_place(path, name, first.cells, names) for name in columns]
    places = places or list(range(len(first.cells)))
    if not names and first.cells:
        rows = chain([first], rows)
    reasons, kept = [], 0
    for row in rows:
        if len(row.cells) != len(first.cells):
            line = f"{'header' if names else 'first line'} has {len(first.cells)}"
            reasons.append(f"{row.where} has {len(row.cells)} cells and the {line}")
            continue
        cells = [row.cells[place] for place in places]
        if filled and not all(cells):
            empty = f"cell {cells.index('') + 1} is empty"
            reasons.append(f"{row.where} has {len(cells)} cells, {empty}")
            continue
        kept += 1
        yield Row(cells, row.where)
    if len(reasons) >= max(kept, 1):
        raise UserError(f"{reasons[0]}; expected as many in every row, with text")
    if reasons:
        every = len(reasons) + kept
        warn_once(f"{path}: left out {len(reasons):,} of {every:,} rows: {reasons[0]}")


def _place(path: Path, name: str, cells: Sequence[str], names: Sequence[str]) -> int:
    """Return the place of a column from 0."""
    if name in names:
        return names.index(name)
    if name.startswith("#") and name[1:].isdecimal() and 1 <= int(name[1:]) <= len(cells):
        return int(name[1:]) - 1
    raise UserError(
        f"{path} has no column {name!r}; its header has {', '.join(names) or 'nothing'}"
        f"{f', and its rows have {len(cells)} cells: #1, #2, ...' if cells else ''}"
    )
