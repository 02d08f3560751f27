"""Finds the parallel text of a folder: which files or columns belong together, and their languages.

The names decide, as far as they can: train.fr and train.en are the two sides of the training pairs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from triptych.domains.starter import HELD_OUT
from triptych.domains.user_files import SPLIT_WORDS, check_one_kind, split_in_name
from triptych.errors import UserError
from triptych.files.results import read_lines

KIND = "text files"
TABLES = (".tsv", ".tsv.gz")
SIDES = ("src", "source", "tgt", "target", "trg")
"""Words for a side, source first, which name no language."""
NO_LANGUAGE = (*SIDES, "txt", "ref", "hyp", "out", "raw", "tok")
LANGUAGE_OF_SCRIPT = {"HANGUL": "ko", "HIRAGANA": "ja", "KATAKANA": "ja", "CJK": "zh"}
"""Scripts of one language, as Unicode names begin."""
UNKNOWN = ("qaa", "qab")
"""Codes for a source and a target of unknown language: ISO 639-2 reserves them for private use."""
LOOKED_AT = 2000
"""Lines whose script is looked at."""


@dataclass(frozen=True)
class ParallelFiles:
    """Text files in pairs, first side first."""

    directory: Path
    files: dict[str, tuple[str, str]]
    """Names of both files of each split."""
    sides: tuple[str, str]
    """What the names call the sides: language codes or other words."""

    def swapped(self) -> ParallelFiles:
        """Return the same files in the other direction."""
        files = {split: (second, first) for split, (first, second) in self.files.items()}
        return ParallelFiles(self.directory, files, (self.sides[1], self.sides[0]))


@dataclass(frozen=True)
class Table:
    """Tab-separated file with a column for each side."""

    directory: Path
    name: str
    sides: tuple[str, str]
    """Names of the two columns."""
    split_column: str | None
    split_names: dict[str, str]
    """Word of the split column for train, validation and test."""

    def swapped(self) -> Table:
        """Return the same file in the other direction."""
        first, second = self.sides
        return Table(
            self.directory, self.name, (second, first), self.split_column, self.split_names
        )


def find_text(data: Path) -> ParallelFiles | Table:
    """Return the parallel text of a path: of a .tsv file, or of the files of a folder.

    Raises UserError where there is none, where several readings are possible, and for a folder that
    holds data of another kind too.
    """
    if data.is_file() and data.name.endswith(TABLES):
        return _table(data)
    if not data.is_dir():
        found = "is no .tsv file" if data.exists() else "does not exist"
        raise UserError(f"--data {data} {found}; expected a folder of text files, or a .tsv file")
    files = sorted(p for p in data.iterdir() if p.is_file() and not p.name.startswith("."))
    check_one_kind(data, files, KIND)
    tables = [path for path in files if path.name.endswith(TABLES)]
    if len(tables) == 1:
        return _table(tables[0])
    pairs: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files:
        stem, _, side = path.name.removesuffix(".gz").rpartition(".")
        pairs[stem][side] = path.name
    sides = {frozenset(found) for found in pairs.values()}
    if len(sides) == 1 and len(next(iter(sides))) == 2:
        return _named_by_side(data, pairs)
    if len(files) == 2:
        first, second = (path.name.partition(".")[0] for path in files)
        return ParallelFiles(data, {"train": (files[0].name, files[1].name)}, (first, second))
    shown = ", ".join(path.name for path in files[:6]) + (", ..." if len(files) > 6 else "")
    raise UserError(
        f"--data {data} holds {shown or 'no files'}; expected two text files whose lines belong "
        "together, such as train.fr and train.en, or one .tsv file"
    )


def _named_by_side(data: Path, pairs: dict[str, dict[str, str]]) -> ParallelFiles:
    """Return files such as train.fr, train.en, val.fr and val.en."""
    sides = sorted(next(iter(pairs.values())), key=lambda side: (_side_order(side), side))
    first, second = sides
    files: dict[str, tuple[str, str]] = {}
    for stem, found in pairs.items():
        split = split_in_name(stem)
        if split in files:
            raise UserError(
                f"--data {data}: {found[first]} and {files[split][0]} both seem to be of the split "
                f"{split}; expected two files for each of train, validation and test"
            )
        files[split] = (found[first], found[second])
    if "train" not in files:
        raise UserError(
            f"--data {data} has {', '.join(files)} files and none to train on; expected two files "
            "such as train.fr and train.en"
        )
    return ParallelFiles(data, files, (first, second))


def _table(path: Path) -> Table:
    """Return the columns of a .tsv file: two of text, and perhaps one with splits."""
    lines = read_lines(path)
    rows = [line.split("\t") for line in lines]
    header = [cell.strip() for cell in rows[0]] if rows else []
    uneven = next((n for n, row in enumerate(rows, 1) if len(row) != len(header)), None)
    if uneven is not None:
        raise UserError(
            f"line {uneven} of {path} has {len(rows[uneven - 1])} tab-separated cells and the "
            f"header has {len(header)}"
        )
    if len(rows) < 2 or len(header) < 2:
        raise UserError(
            f"{path} has {len(rows)} lines of {len(header)} columns; expected a header and rows "
            "with two columns of text"
        )
    split = next((name for name in header if name.lower() == "split"), None)
    names: dict[str, str] = {}
    if split is not None:
        for word in sorted({row[header.index(split)].strip() for row in rows[1:]}):
            if word.lower() in SPLIT_WORDS:
                names[SPLIT_WORDS[word.lower()]] = word
        if set(names) != {"train", *HELD_OUT}:
            split, names = None, {}
    chosen = _text_columns(header, rows[1 : LOOKED_AT + 1])
    return Table(path.parent, path.name, chosen, split, names)


def _text_columns(header: list[str], rows: list[list[str]]) -> tuple[str, str]:
    """Return the columns of languages or sides, else the two with the longest text, in order."""
    named = [name for name in header if language_code(name) or name.lower() in SIDES]
    if len(named) != 2:
        lengths = {name: sum(len(row[n]) for row in rows) for n, name in enumerate(header)}
        named = sorted(sorted(header, key=lengths.__getitem__)[-2:], key=header.index)
    first, second = sorted(named, key=_side_order)
    return first, second


def _side_order(side: str) -> int:
    """Return the place of a word for a side; 0 for other words, which stay in their order."""
    return SIDES.index(side.lower()) if side.lower() in SIDES else 0


def language_code(word: str) -> str | None:
    """Return a word that has the form of a language code, such as fr or zh-CN; None otherwise."""
    found = re.fullmatch(r"[a-z]{2,3}([-_]\w{2,8})?", word, re.IGNORECASE)
    return word if found and word.lower() not in NO_LANGUAGE else None
