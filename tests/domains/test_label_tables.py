"""Tables of texts and labels as people bring them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from starter_data import sentences, write_lines
from test_describe import items_in, look, text

from triptych.errors import UserError

LINES = sentences("en", 300)
LABELS = ["ham", "spam", "ham"] * 100


def as_csv(rows: list[list[str]]) -> list[str]:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue().splitlines()


ROWS = list(map(list, zip(LABELS, (f"{line}, or so!" for line in LINES), strict=True)))
TABLES: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    "label first": ("sms.tsv", ["\t".join(row) for row in ROWS], ("#2", "#1")),
    "no name": ("SMSSpamCollection", ["\t".join(row) for row in ROWS], ("#2", "#1")),
    "empty columns": (
        "spam.csv",
        as_csv([["v1", "v2", "", ""], *([*row, "", ""] for row in ROWS)]),
        ("v2", "v1"),
    ),
    "id": (
        "a.csv",
        as_csv([["id", "text", "label"], *([str(n), b, a] for n, (a, b) in enumerate(ROWS))]),
        ("text", "label"),
    ),
    "numbers": (
        "a.tsv",
        [
            "polarity\tuser\ttweet",
            *(f"{len(a) % 2}\tu{n}\t{b}" for n, (a, b) in enumerate(ROWS)),
        ],
        ("tweet", "polarity"),
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_columns_of_text_and_label(tmp_path: Path, kind: str) -> None:
    name, lines, columns = TABLES[kind]
    described, config = look("language", write_lines(tmp_path / name, lines))
    assert config.data.source.columns == columns
    assert type(config.task).__name__ == "Classification"
    assert sum(items_in(config).values()) == 300
    assert "2 labels" in text(described)


def test_a_test_table_without_labels_is_left_out(tmp_path: Path) -> None:
    rows: list[Any] = [[str(n), b, a] for n, (a, b) in enumerate(ROWS)]
    write_lines(tmp_path / "train.csv", as_csv([["id", "text", "label"], *rows[:250]]))
    write_lines(tmp_path / "test.csv", as_csv([["id", "text"], *(row[:2] for row in rows[250:])]))
    write_lines(tmp_path / "README.txt", ["about"])
    described, config = look("language", tmp_path)
    assert sum(items_in(config).values()) == 250
    assert "2 files left out: README.txt, test.csv" in text(described)


def test_a_damaged_row_does_not_cost_the_table(tmp_path: Path) -> None:
    rows = ["\t".join(row[::-1]) for row in ROWS]
    table = write_lines(tmp_path / "a.tsv", [*rows, "a\tb\tham", "\tham"])
    assert sum(items_in(look("language", table)[1]).values()) == 300
    with pytest.raises(UserError, match="has one column"):
        look("language", write_lines(tmp_path / "one.tsv", LINES))
