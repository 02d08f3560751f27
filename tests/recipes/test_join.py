"""Pairs of several source languages as one table, and held-out splits by language."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from triptych.config.schema import to_plain
from triptych.domains.translation.config import DataConfig
from triptych.domains.translation.sources import ParallelText
from triptych.errors import UserError
from triptych.tools import recipes

join = recipes.load("join")


def write_config(folder: Path, language: str, *splits: str) -> str:
    """A settings file whose corpus has a pair a split."""
    (folder / language).mkdir()
    for split in splits:
        (folder / language / f"{split}.{language}").write_text(f"{language} {split}\n")
        (folder / language / f"{split}.en").write_text(f"from {language}\n")
    files = {split: [f"{split}.{{language}}"] for split in splits}
    source = ParallelText(language, "en", directory=str(folder / language), files=files)
    path = folder / f"{language}.yaml"
    path.write_text(yaml.safe_dump({"data": to_plain(DataConfig(source=source))}, sort_keys=False))
    return str(path)


def test_each_split_has_the_pairs_of_all_and_held_out_ones_are_by_language(tmp_path: Path) -> None:
    first = write_config(tmp_path, "ko", "train", "validation", "test")
    second = write_config(tmp_path, "zh", "train", "validation", "test", "news")
    made = {name: list(rows)[1:] for name, rows in join.main(join.Options((first, second)))}
    assert [*made] == [
        "train.tsv", "validation.tsv", "test.tsv", "ko.validation.tsv", "ko.test.tsv",
        "zh.validation.tsv", "zh.test.tsv", "zh.news.tsv",
    ]  # fmt: skip
    assert made["train.tsv"] == [("ko train", "from ko"), ("zh train", "from zh")]
    assert made["zh.test.tsv"] == [("zh test", "from zh")]
    assert made["zh.news.tsv"] == [("zh news", "from zh")]
    with pytest.raises(UserError, match="another source language"):
        list(join.main(join.Options((first, first))))
