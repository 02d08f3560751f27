"""Parallel text as people bring it: names of files, columns of tables, and what is refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from starter_data import sentences, write_lines
from test_describe import items_in, look, text

from triptych.errors import UserError

EN, FR, KO = (sentences(language, 150) for language in ("en", "fr", "ko"))
SOME = {"train": slice(0, 120), "valid": slice(120, 135), "test": slice(135, 150)}


def capital(lines: list[str]) -> list[str]:
    """Lines as sentences, which no header looks like."""
    return [f"{line.capitalize()}." for line in lines]


def write_files(folder: Path, pattern: str, sides: tuple[str, str], splits: Any = SOME) -> None:
    for split, part in splits.items():
        for side, lines in zip(sides, (EN, FR), strict=True):
            write_lines(folder / pattern.format(split=split, side=side), lines[part])


@pytest.mark.parametrize(
    ("pattern", "sides"),
    [
        ("{split}.{side}", ("en", "fr")),
        ("{split}_{side}.txt", ("en", "fr")),
        ("{side}-{split}.txt", ("src", "tgt")),
        ("{split}/news.en-fr.{side}", ("en", "fr")),
        ("{side}/{split}.txt", ("english", "french")),
        ("{split}/{side}_{side}.{split}", ("en_XX", "fr_XX")),
        ("Corpus.{split}.en-fr.{side}.txt", ("en", "fr")),
    ],
)
def test_names_of_files(tmp_path: Path, pattern: str, sides: tuple[str, str]) -> None:
    write_files(tmp_path, pattern, sides)
    (tmp_path / "README").write_text("about")
    described, config = look("translation", tmp_path)
    assert items_in(config) == {"train": 120, "validation": 15, "test": 15}
    assert config.data.source.items("test")[0] == (EN[135], FR[135])
    assert "1 file left out: README" in text(described)


def test_several_corpora_and_test_sets_in_a_zip_archive(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    parts = {"news/train": slice(0, 60), "talks": slice(60, 120), "test_2016": SOME["valid"]}
    write_files(folder, "x/{split}.{side}", ("en", "fr"), {**parts, "test_2017": SOME["test"]})
    for name in ("LICENSE", "x/talks.xml", "x/odd.en"):
        (folder / name).write_text("left out")
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder))
    for data in (folder, tmp_path / "texts.zip"):
        described, config = look("translation", data)
        sizes = items_in(config)
        assert sizes["train"] + sizes["validation"] == 120
        assert (sizes["test"], sizes["x_test_2017"]) == (15, 15)
        assert "3 files left out: LICENSE, x/odd.en, x/talks.xml" in text(described)


ROWS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "tatoeba.tsv": (
        [f"{n}\t{a}\t{n + 7}\t{b}" for n, (a, b) in enumerate(zip(capital(EN), FR, strict=True))],
        {"source_column": "#2", "target_column": "#4", "header": False},
    ),
    "anki.txt.tsv": (
        [
            f"{a}\t{b}\tCC-BY 2.0 (France) Attribution: tatoeba.org #{n} (CK) & #{n + 1} (U{n})"
            for n, (a, b) in enumerate(zip(capital(EN), capital(FR), strict=True))
        ],
        {"source_column": "#1", "target_column": "#2", "header": False},
    ),
    "same-names.tsv": (
        ["lang\ttext\tlang\ttext"] + [f"en\t{a}\tfr\t{b}" for a, b in zip(EN, FR, strict=True)],
        {"source_column": "#2", "target_column": "#4", "header": True},
    ),
    "columns.csv": (
        ["English,French,licence"] + [f"{a},{b},CC BY" for a, b in zip(EN, FR, strict=True)],
        {"source_column": "English", "target_column": "French", "header": True},
    ),
    "hf.jsonl": (
        [
            json.dumps({"id": n, "translation": {"fr": b, "en": a}})
            for n, (a, b) in enumerate(zip(EN, FR, strict=True))
        ],
        {"source_column": "fr", "target_column": "en", "header": True},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_columns_of_tables(tmp_path: Path, name: str) -> None:
    rows, columns = ROWS[name]
    write_lines(tmp_path / name, rows)
    _, config = look("translation", tmp_path / name)
    source = config.data.source
    assert {key: getattr(source, key) for key in columns} == columns
    assert sum(items_in(config).values()) == 150


def test_columns_of_three_languages_are_chosen(tmp_path: Path) -> None:
    rows = [f"{n}\t{a}\t{b}\t{c}" for n, (a, b, c) in enumerate(zip(EN, FR, KO, strict=True))]
    table = write_lines(tmp_path / "a.tsv", ["id\ten\tfr\tko", *rows])
    with pytest.raises(UserError, match="columns en, fr, ko; choose two"):
        look("translation", table)
    _, config = look("translation", table, source_language="ko", target_language="en")
    assert set(config.data.source.items("train")) <= set(zip(KO, EN, strict=True))
    assert config.data.source.target_language == "en"
    for language, lines in {"en": EN, "fr": FR, "ko": KO}.items():
        write_lines(tmp_path / "files" / f"a.{language}", lines)
    with pytest.raises(UserError, match="files of en, fr, ko; choose two"):
        look("translation", tmp_path / "files", source_language="ko")
    _, config = look("translation", tmp_path / "files", source_language="fr", target_language="ko")
    assert set(config.data.source.items("test")) <= set(zip(FR, KO, strict=True))


def test_tables_of_splits_and_a_column_of_two(tmp_path: Path) -> None:
    for split, part in SOME.items():
        rows = [f"{a}\t{b}" for a, b in zip(EN[part], FR[part], strict=True)]
        write_lines(tmp_path / "two" / f"{split}.tsv", ["en\tfr", *rows])
    (tmp_path / "two" / "valid.tsv").unlink()
    _, config = look("translation", tmp_path / "two")
    sizes = items_in(config)
    assert (sizes["train"] + sizes["validation"], sizes["test"]) == (120, 15)
    rows = [
        f"{a}\t{b}\t{'test' if n < 30 else 'train'}"
        for n, (a, b) in enumerate(zip(EN, FR, strict=True))
    ]
    write_lines(tmp_path / "a.tsv", ["en\tfr\tsplit", *rows])
    _, config = look("translation", tmp_path / "a.tsv")
    sizes = items_in(config)
    assert (sizes["train"] + sizes["validation"], sizes["test"]) == (120, 30)


def test_splits_are_no_sides(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_lines(tmp_path / f"{split}.txt", EN)
    with pytest.raises(UserError, match="splits test and train and not of two languages"):
        look("translation", tmp_path)


@pytest.mark.parametrize("name", ["memory.tmx", "memory.xlf"])
def test_translation_memories_name_what_converts_them(tmp_path: Path, name: str) -> None:
    write_lines(tmp_path / name, ["<?xml version='1.0'?>"])
    with pytest.raises(UserError, match=r"translation memory.* makes a table"):
        look("translation", tmp_path / name)
