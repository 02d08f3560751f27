"""Labelled captions: pairs that translate or not, and languages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from triptych.errors import UserError
from triptych.tools import recipes

captions = recipes.load("captions")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list]:
    draw = np.random.default_rng(0)
    for language in ("en", "de"):
        lines = [f"{language}\t{n} {'x' * int(draw.integers(1, 20))}" for n in range(40)]
        (tmp_path / f"t.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {"directory": str(tmp_path), "files": {"train": "t.{language}"}}
    made = captions.main(captions.Options(**options, languages=("en", "de"), window=4))
    return {name: list(rows) for name, rows in made}


def test_pairs_are_balanced_and_of_similar_length(files: dict[str, list]) -> None:
    rows = files["pairs.train.tsv"]
    for first, second, label in rows:
        assert (first.split()[1] == second.split()[1]) == (label == "translation")
    lengths: dict[str, list[int]] = {"translation": [], "other": []}
    for _, second, label in rows:
        lengths[label].append(len(second))
    assert len(lengths["translation"]) == len(lengths["other"]) == 40
    difference = np.subtract(lengths["translation"], lengths["other"])
    assert np.abs(difference).mean() < np.std(lengths["translation"])
    assert not any("\t" in cell for row in rows for cell in row), "a tab would end a cell"


def test_languages_are_cut_to_windows(files: dict[str, list]) -> None:
    rows = files["languages.train.tsv"]
    assert [label for _, label in rows] == ["en"] * 40 + ["de"] * 40
    assert all(0 < len(text) <= 4 for text, _ in rows)


def test_texts_of_unequal_length_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_text("one\n")
    (tmp_path / "t.de").write_text("eins\nzwei\n")
    files = {"train": "t.{language}"}
    options = captions.Options(str(tmp_path), files, languages=("en", "de"))
    with pytest.raises(UserError, match="1 lines of en and 2 of de"):
        dict(captions.main(options))
