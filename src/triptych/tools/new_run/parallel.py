"""Parallel text of a user: which files or columns are its sides, and which splits they are of.

Two files are the sides of a split where their names differ in a language alone: train.fr and
train.en, src-train.txt and tgt-train.txt, en/news.txt and de/news.txt. Words for splits are never
sides.
"""

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triptych.errors import UserError
from triptych.files.folders import visible_files
from triptych.files.splits import SPLIT_WORDS, split_in_name
from triptych.text.tables import plain_name, read_columns, table_suffix
from triptych.tools.new_run.columns import (
    LANGUAGES,
    SIDES,
    Column,
    Table,
    is_table,
    language_code,
    side_order,
)
from triptych.tools.new_run.data import by_split, is_about

Asked = tuple[str | None, str | None]

TOOLS = {
    (".tmx",): "`pip install tmx2corpus` and `tmx2corpus FILE`, or the program that wrote it,",
    (".xlf", ".xliff", ".sdlxliff", ".mxliff"): "the program that wrote it, or `xliff2po` and "
    "`po2csv` of translate-toolkit,",
}
"""Ends of names of translation memories -> what makes a table or two text files of them."""


@dataclass(frozen=True)
class FoundText:
    """Parallel text of a folder: text files in pairs, or tables."""

    directory: Path
    sides: tuple[str, str]
    """What the names of files or columns call the sides: language codes or other words."""
    files: dict[str, list[str]]
    """Names of the pairs of files of each split, as `ParallelText.files`; or of the tables."""
    columns: dict[str, Any] | None = None
    """Settings of `TabSeparated` about the columns; None for text files."""
    left_out: list[str] = field(default_factory=list)
    """Names of files that are not read."""


def find_text(data: Path, asked: Asked) -> FoundText:
    """Return the parallel text of a table, of a zip archive or of a folder.

    asked: names or languages of source and target, None where the data decide. Raises UserError
    where there is none and where several readings are possible.
    """
    if not data.exists():
        raise UserError(
            f"--data {data} does not exist; expected a folder of text files, or a table"
        )
    for endings, tool in TOOLS.items():
        if data.name.lower().endswith(endings):
            raise UserError(
                f"--data {data} is a translation memory, which is not read; {tool} makes a table "
                "or two text files of it"
            )
    if data.is_dir():
        paths = sorted(visible_files(data))
        names = [path.relative_to(data).as_posix() for path in paths]
    elif zipfile.is_zipfile(data):
        with zipfile.ZipFile(data) as archive:
            names = sorted(name for name in archive.namelist() if not name.endswith("/"))
        names = [name for name in names if not re.match(r"\.|__MACOSX", name)]
    elif is_table(data):
        return _tables(data.parent, {"train": [data.name]}, asked)
    else:
        raise UserError(
            f"--data {data} is no table ({data.suffix or 'its name has no end'}); expected a "
            "folder of two text files whose lines belong together, or a .tsv, .csv or .jsonl file"
        )
    texts = [name for name in names if not is_about(name) and not table_suffix(name)]
    found = _pairs(data, texts, asked)
    tables = [name for name in names if not is_about(name) and is_table(data / name)]
    if found is None and tables:
        found = _tables(data, _by_split(data, {name: name for name in tables}), asked)
    if found is None:
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        raise UserError(
            f"--data {data} holds {shown or 'no files'}; expected two text files whose lines "
            "belong together, such as train.fr and train.en, or tables such as .tsv files"
        )
    used = {name for split in found.files.values() for pair in split for name in pair.split(" | ")}
    found.left_out.extend(name for name in names if name not in used)
    return found


def _sides(name: str) -> Iterator[tuple[str, str]]:
    """Yield each word of a name that may be a side, and the name without it."""
    words = r"[A-Za-z]{2,3}[-_](?:[A-Z]{2}|[A-Z][a-z]{3})(?![A-Za-z])|[A-Za-z]+"
    name = plain_name(name)
    for match in re.finditer(words, name):
        word = match[0]
        if language_code(word) or word.lower() in (*SIDES, *LANGUAGES):
            yield word, f"{name[: match.start()]}*{name[match.end() :]}"
            if name.count(word) > 1:
                yield word, re.sub(rf"(?<![A-Za-z]){word}(?![A-Za-z])", "*", name)


def _pairs(data: Path, names: list[str], asked: Asked) -> FoundText | None:
    """Return text files in pairs; None where no two files belong together."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        for side, rest in _sides(name):
            groups[rest].setdefault(side, name)
    groups = {rest: found for rest, found in groups.items() if len(set(found.values())) > 1}
    sides = sorted({side for found in groups.values() for side in found})
    if not groups:
        if len(names) != 2:
            return None
        splits = [split_in_name(name) for name in names]
        if splits[0] != splits[1]:
            raise UserError(
                f"--data {data} has {names[0]} and {names[1]}, whose names are of the splits "
                f"{splits[0] or 'train'} and {splits[1] or 'train'} and not of two languages; "
                "expected two files for each split, such as train.fr and train.en"
            )
        first, second = (name.rpartition("/")[2].partition(".")[0] for name in names)
        return FoundText(data, (first, second), {"train": [" | ".join(names)]})
    first, second = _choose(sides, asked, f"{data} has files of")
    pairs = {
        rest: f"{found[first]} | {found[second]}"
        for rest, found in groups.items()
        if first in found and second in found
    }
    if not pairs:
        raise UserError(f"--data {data} has no files of both {first} and {second}")
    files = _by_split(data, {pair: rest for rest, pair in pairs.items()})
    return FoundText(data, (first, second), files)


def _by_split(data: Path, names: dict[str, str]) -> dict[str, list[str]]:
    """Return files as `by_split` does; UserError without one to train on."""
    files = by_split(names)
    if "train" not in files:
        raise UserError(
            f"--data {data} has {', '.join(files)} files and none to train on; expected two files "
            "such as train.fr and train.en"
        )
    return files


def _tables(directory: Path, files: dict[str, list[str]], asked: Asked) -> FoundText:
    """Return tables, of which the first one to train on decides the columns."""
    table = Table.of(directory / files["train"][0])
    first, second = _text_columns(table, asked)
    row_splits: dict[str, str] = {}
    split = next((c for c in table.columns if c.title.lower() in ("split", "subset")), None)
    if split is not None and len(files) == 1:
        words: set[str] = set()
        for name in files["train"]:
            found = read_columns(directory / name, [split.name], header=table.header)
            words |= {row.cells[0] for row in found}
        row_splits = {
            SPLIT_WORDS[word.lower()]: word for word in sorted(words) if word.lower() in SPLIT_WORDS
        }
        row_splits = row_splits if "train" in row_splits and len(row_splits) > 1 else {}
    columns = {
        "source_column": first.name,
        "target_column": second.name,
        "split_column": split.name if split is not None and row_splits else None,
        "split_names": row_splits,
        "header": table.header,
    }
    sides = (first.title or first.name, second.title or second.name)
    of_rows = dict.fromkeys(row_splits, files["train"])
    return FoundText(directory, sides, of_rows or files, columns)


def _text_columns(table: Table, asked: Asked) -> tuple[Column, Column]:
    """Return the columns of source and target: those that the options or the names say.

    Else the only two with text. Raises UserError where that leaves a choice.
    """
    texts = [column for column in table.columns if column.kind == "text"]
    if len(texts) < 2:  # short texts may come again and again
        texts = [column for column in table.columns if column.kind in ("text", "label")]
        texts = sorted(texts, key=lambda column: -column.length)[:2]
        texts.sort(key=table.columns.index)
    if len(texts) < 2:
        raise UserError(
            f"{table.path} has the columns {table.kinds()}; expected two columns of text"
        )
    named = [column for column in texts if column.language or column.title.lower() in SIDES]
    candidates = named if len(named) > 1 else texts
    candidates += [
        c for c in texts if c not in candidates and any(map(is_side, [c.name] * 2, asked))
    ]
    names = [column.name for column in sorted(candidates, key=table.columns.index)]
    chosen = _choose(names, asked, f"{table.path} has texts in the columns")
    first, second = (next(c for c in candidates if c.name == name) for name in chosen)
    return first, second


def _choose(names: list[str], asked: Asked, what: str) -> tuple[str, str]:
    """Return source and target of the names of sides; UserError where that leaves a choice."""
    first, second = (next((n for n in names if is_side(n, word)), None) for word in asked)
    rest = [name for name in names if name not in (first, second)]
    if first is second is None and len(names) == 2:
        first, second = sorted(names, key=side_order)
    elif len(rest) == 1:
        first, second = first or rest[0], second or rest[0]
    if first is None or second is None or first == second:
        raise UserError(
            f"{what} {', '.join(names)}; choose two with --source_language and --target_language"
        )
    return first, second


def is_side(name: str, asked: str | None) -> bool:
    """Return whether a name of a side is the name or the language that was asked for."""
    if asked is None:
        return False
    code = LANGUAGES.get(name.lower()) or language_code(name) or ""
    return asked.lower() in (name.lower(), code.lower(), re.split("[-_]", code.lower())[0])
