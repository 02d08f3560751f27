"""Files as people have them: encodings, line ends, compression by content, and kinds of tables."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import logging
import lzma
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from triptych.domains.language.sources import TabSeparated as LabelledTable
from triptych.domains.translation.sources import TabSeparated
from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.files.splits import split_in_name
from triptych.text.tables import read_columns, read_table

LINES = ["Zwei Männer.", 'a "quoted" one, with a comma', "ปิ๊ก"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.txt.xz", "a.bz2"])
def test_the_first_bytes_say_how_a_file_is_compressed(
    tmp_path: Path, pack: Callable[[bytes], bytes], name: str
) -> None:
    (tmp_path / name).write_bytes(pack("\n".join(LINES).encode()))
    assert read_lines(tmp_path / name) == LINES


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_marks_and_line_ends(tmp_path: Path, encoding: str, end: str) -> None:
    (tmp_path / "a.txt").write_bytes(end.join([*LINES, ""]).encode(encoding))
    assert read_lines(tmp_path / "a.txt") == LINES


def test_windows_1252_is_read_and_named_and_nothing_else_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["spam,You won £5, call “now” €", "ham,the café is open"]
    path = tmp_path / "spam.csv"
    path.write_bytes("\r\n".join(lines).encode("cp1252"))
    assert read_lines(path) == lines
    assert "spam.csv, line 1 is not UTF-8: byte 0xa3; it is read as Windows-1252" in caplog.text
    others = [
        "Привет, как дела?".encode("cp1251"),
        "오늘 날씨가 좋아요.".encode("euc-kr"),
        "one bad byte in é è".encode() + b" \xe9",
        b"with \0 and \xe9 in it",
    ]
    for content in others:
        path.write_bytes(content)
        with pytest.raises(UserError, match="is not UTF-8"):
            read_lines(path)


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("train.en", "one\ntwo\n")
    assert read_lines(tmp_path / "a.zip" / "train.en") == ["one", "two"]
    with pytest.raises(UserError, match="is a zip archive"):
        read_lines(tmp_path / "a.zip")
    (tmp_path / "a.txt").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(UserError, match="git lfs pull"):
        read_lines(tmp_path / "a.txt")
    (tmp_path / "half.txt").write_bytes(lzma.compress(b"line\n" * 1000)[:-30])
    with pytest.raises(UserError, match=r"half\.txt is not a complete xz file"):
        read_lines(tmp_path / "half.txt")


def as_csv(rows: list[list[str]], separator: str = ",") -> bytes:
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator).writerows(rows)
    return stream.getvalue().encode()


ROWS = [["en", "de"], ['He said, "no"; twice', "Er sagte"], ["Two\nlines | here", "Zwei\tda"]]
READ = [["en", "de"], ['He said, "no"; twice', "Er sagte"], ["Two lines | here", "Zwei\tda"]]
OBJECTS = [dict(zip(ROWS[0], row, strict=True)) for row in ROWS[1:]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", as_csv(ROWS)),
        ("a.csv", as_csv(ROWS, ";")),
        ("a.jsonl", "\n".join(json.dumps(row) for row in OBJECTS).encode()),
        ("a.json", json.dumps(OBJECTS, indent=1).encode()),
        ("a.jsonl.gz", b"".join(json.dumps({"translation": x}).encode() + b"\n" for x in OBJECTS)),
    ],
)
def test_kinds_of_tables(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert [row.cells for row in read_table(tmp_path / name)] == READ
    corpus = TabSeparated(
        directory=str(tmp_path),
        files={"train": [name], "test": [name]},
        source_column="en",
        target_column="de",
    )
    assert corpus.items("test") == [tuple(row) for row in READ[1:]]


def test_parquet_and_zstd_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.parquet", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd rest")
    for read, name in ((read_table, "a.parquet"), (read_lines, "a.txt.zst")):
        with pytest.raises(UserError, match=r"triptych\[tables\]"):
            list(read(tmp_path / name))


def test_parquet_and_zstd(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet, zstandard = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("zstandard")
    pair = pyarrow.struct([(side, pyarrow.string()) for side in OBJECTS[0]])  # in this order
    table = pyarrow.table({"translation": pyarrow.array(OBJECTS, pair)})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert [row.cells for row in read_table(tmp_path / "a.parquet")] == READ
    (tmp_path / "a.txt").write_bytes(zstandard.compress("\n".join(LINES).encode()))
    assert read_lines(tmp_path / "a.txt") == LINES


def test_columns_by_place_and_damaged_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "a.tsv"
    rows = [f"{n}\tHello {n}.\tHallo {n}." for n in range(9)]
    table.write_text("\n".join([*rows, "one cell", "10\ttoo\tmany\tcells"]), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            read = [row.cells for row in read_columns(table, ["#3", "#2"], header=False)]
    assert read == [[f"Hallo {n}.", f"Hello {n}."] for n in range(9)]
    assert caplog.text.count("left out 2 of 11 rows") == 1
    for name in ("de", "#4", "#0"):
        with pytest.raises(UserError, match=f"has no column '{name}'"):
            list(read_columns(table, [name]))


def test_labels_in_any_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(as_csv([["v1", "v2", "", ""], ["ham", "Hi, you", "", ""]]))
    source = LabelledTable(str(tmp_path), {"train": ["a.csv"]}, header=True, columns=("v2", "v1"))
    assert [tuple(row[:2]) for row in source.items("train")] == [(("Hi, you",), "ham")]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("training/a.txt", "train"), ("seg_test/b", "test"), ("x/TestSet.tsv", "test"),
        ("val2017.en", "validation"), ("newsdev2019.de", "validation"), ("devtest/x.en", "test"),
        ("test/train.en", "train"), ("latest.txt", None), ("trainA/1.png", "train"),
        ("EVAL.csv", "test"), ("contest/a", None), ("src-valid.txt", "validation"),
    ],
)  # fmt: skip
def test_splits_in_names(name: str, split: str | None) -> None:
    assert split_in_name(name) == split


def test_a_name_of_two_splits_is_refused() -> None:
    with pytest.raises(UserError, match="may be of train or of test"):
        split_in_name("a/train_test.csv")


@pytest.mark.parametrize(
    ("head", "separator", "first"),
    [
        ("#separator:tab\n#html:true\n#tags column:3\n", "\t", ["a", "b", "x, y"]),
        ("#separator:Comma\n#notetype column:1\n#columns:Front,Back,Tags\n", ",", None),
        ("#separator:Semicolon\n#html:false\n#deck:German\n", ";", ["a", "b", "x, y"]),
    ],
)
def test_the_head_of_ankis_notes_is_no_row(
    tmp_path: Path, head: str, separator: str, first: list[str] | None
) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows([["a", "b", "x, y"], ["#c", "d", "z"]])
    path = tmp_path / "notes.txt"
    path.write_text(head + text.getvalue())
    rows = list(read_table(path))
    assert [row.cells for row in rows[-2:]] == [["a", "b", "x, y"], ["#c", "d", "z"]]
    assert rows[0].cells == (first or ["Front", "Back", "Tags"])
    assert rows[-1].where == f"{path}, line 5"
