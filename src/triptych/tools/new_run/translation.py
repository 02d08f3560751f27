"""What a user's parallel text holds: which files or columns are its sides, pairs and languages.

The names decide, as far as they can: train.fr and train.en are the two sides of the training pairs.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triptych.config.schema import to_plain
from triptych.domains.translation.domain import TranslationNewRunOptions
from triptych.domains.translation.sources import FileCorpus, Pair, ParallelText, TabSeparated
from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.files.splits import hash_position
from triptych.tools.new_run.data import (
    HELD_OUT,
    SHARES,
    SPLIT_WORDS,
    Description,
    Setting,
    check_one_kind,
    held_out,
    letters,
    scripts,
    span,
    split_in_name,
)

SIZES = Path(__file__).with_suffix(".yaml")
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
LEAST = 100
"""Fewest pairs of which a vocabulary and a model can be learnt."""
CHARACTERS_PER_TOKEN = 3.5
"""Rough length of a token of byte-pair encoding."""


def describe(options: TranslationNewRunOptions) -> Description:
    """Look at parallel text.

    Raises UserError as `find_text` does, for files with unequal numbers of lines, for text that is
    not UTF-8, and for too few pairs.
    """
    data = Path(options.data).expanduser()
    found = find_text(data)
    if options.source_language == found.sides[1] or options.target_language == found.sides[0]:
        found = found.swapped()
    missing = [split for split in HELD_OUT if split not in found.splits]
    pairs = list(
        _source(found, UNKNOWN, {f"{split}_share": SHARES[0] for split in missing}).read_files(
            "train"
        )
    )
    full = [pair for pair in pairs if all(pair)]
    if len(full) < LEAST:
        raise UserError(
            f"--data {data} has {len(full)} sentence pairs to train on; expected {LEAST} or more"
        )
    languages, advice = _languages(found, full, options)
    places = [hash_position(source.encode()) for source, _ in full]
    shares = held_out(places, missing, usual=0.02, least=20)
    source = _source(found, languages, {name: share.value for name, share in shares.items()})
    facts = [f"direction: from {found.sides[0]} to {found.sides[1]}"]
    facts += _facts(found.sides, languages, pairs, full)
    facts += map(str, source.leaks({"train": source.items("train")}))
    if splits := [split for split in source.file_splits() if split != "train"]:
        facts.append(f"splits with pairs of their own: {', '.join(splits)}")
    return Description(
        template="own-text",
        sizes=SIZES,
        unit="sentence pairs",
        amount=len(full),
        items=sum(max(len(a), len(b)) / CHARACTERS_PER_TOKEN + 1 for a, b in full),
        settings={"data.source": Setting(to_plain(source))},
        facts=facts,
        advice=advice,
    )


def _source(found: FoundText, languages: tuple[str, str], shares: dict[str, float]) -> FileCorpus:
    """Return the source of data; shares: of the held-out splits that the files do not have."""
    common: dict[str, Any] = {
        "directory": str(found.directory),
        "source_language": languages[0],
        "target_language": languages[1],
        **shares,
    }
    if not found.table:
        files = {split: [" | ".join(names)] for split, names in found.splits.items()}
        return ParallelText(files=files, **common)
    if found.split_column is not None:
        common["split_names"] = {split: word for split, (word, _) in found.splits.items()}
    return TabSeparated(
        files=[found.table],
        source_column=found.sides[0],
        target_column=found.sides[1],
        split_column=found.split_column,
        **common,
    )


def _languages(
    found: FoundText, pairs: list[Pair], options: TranslationNewRunOptions
) -> tuple[tuple[str, str], list[str]]:
    """Return the language codes of both sides, and advice about them.

    Raises UserError for a language of the options that the names contradict.
    """
    advice: list[str] = []
    codes: list[str] = []
    given = (options.source_language, options.target_language)
    for side, (name, asked) in enumerate(zip(found.sides, given, strict=True)):
        named = language_code(name)
        if asked is not None and named is not None and asked != named:
            option = ("source_language", "target_language")[side]
            raise UserError(f"--{option} is {asked}, but the names say {' and '.join(found.sides)}")
        script = scripts(pair[side] for pair in pairs[:LOOKED_AT]).most_common(1)
        guess = LANGUAGE_OF_SCRIPT.get(script[0][0]) if script else None
        codes.append(asked or named or guess or UNKNOWN[side])
        if codes[-1] in UNKNOWN:
            advice.append(
                f"the language of {name} is not known and is written {codes[-1]}: put its code "
                "there, which the scores use"
            )
    advice.append(
        f"this translates {found.sides[0]} into {found.sides[1]}; for the other direction swap "
        "both sides"
        if UNKNOWN[1] in codes or UNKNOWN[0] in codes
        else f"for the other direction: --source_language {codes[1]}"
    )
    return (codes[0], codes[1]), advice


def _facts(
    sides: tuple[str, str], languages: tuple[str, str], pairs: list[Pair], full: list[Pair]
) -> list[str]:
    """Return sentences about numbers, lengths and scripts."""
    empty = len(pairs) - len(full)
    left_out = f", {empty:,} with an empty side, which are left out" if empty else ""
    lines = [f"{len(pairs):,} sentence pairs to train on or to hold out{left_out}"]
    for side, (name, code) in enumerate(zip(sides, languages, strict=True)):
        texts = [pair[side] for pair in full]
        named = name if name == code else f"{name} ({code})"
        lines.append(
            f"{named}: {span([len(text.split()) for text in texts], ' words')} a line, "
            f"median {statistics.median(map(len, texts)):.0f} characters; letters: "
            f"{letters(texts[:LOOKED_AT])}"
        )
    return lines


@dataclass(frozen=True)
class FoundText:
    """Parallel text of a folder: text files in pairs, or a tab-separated file."""

    directory: Path
    sides: tuple[str, str]
    """What the names of files or columns call the sides: language codes or other words."""
    splits: dict[str, tuple[str, str]]
    """Names of the two files of each split; in a table, the word of the split column twice."""
    table: str = ""
    """Name of the tab-separated file; empty for text files in pairs."""
    split_column: str | None = None

    def swapped(self) -> FoundText:
        """Return the same text in the other direction."""
        splits = {split: (second, first) for split, (first, second) in self.splits.items()}
        return replace(self, sides=(self.sides[1], self.sides[0]), splits=splits)


def find_text(data: Path) -> FoundText:
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
        return FoundText(data, (first, second), {"train": (files[0].name, files[1].name)})
    shown = ", ".join(path.name for path in files[:6]) + (", ..." if len(files) > 6 else "")
    raise UserError(
        f"--data {data} holds {shown or 'no files'}; expected two text files whose lines belong "
        "together, such as train.fr and train.en, or one .tsv file"
    )


def _named_by_side(data: Path, pairs: dict[str, dict[str, str]]) -> FoundText:
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
    return FoundText(data, (first, second), files)


def _table(path: Path) -> FoundText:
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
    splits: dict[str, tuple[str, str]] = {}
    if split is not None:
        for word in sorted({row[header.index(split)].strip() for row in rows[1:]}):
            if word.lower() in SPLIT_WORDS:
                splits[SPLIT_WORDS[word.lower()]] = (word, word)
        if set(splits) != {"train", *HELD_OUT}:
            split, splits = None, {}
    chosen = _text_columns(header, rows[1 : LOOKED_AT + 1])
    return FoundText(path.parent, chosen, splits, path.name, split)


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
