"""Cleaned pairs: what stays, in its order, and why each other pair is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from triptych.config.schema import to_plain
from triptych.domains.translation.sources import ParallelText
from triptych.errors import UserError
from triptych.tools import recipes

clean = recipes.load("clean")
KEPT = [("A dog runs.", "Ein Hund rennt."), ("A dog runs.", "Ein Hund läuft."), ("33", "drei")]
LEFT_OUT = [
    (KEPT[0], "repeated pairs"),
    (("  A dog runs. ", "Ein Hund rennt. "), "repeated pairs"),
    (("Berlin!", "berlin"), "pairs of equal sides"),
    (("The end", "--"), "pairs with a side without a letter"),
    (("...", "Ende"), "pairs with a side without a letter"),
    (("The HELD one", "anders"), "pairs that are held out"),
    (("different", "Gehalten!"), "pairs that are held out"),
    (("from another file", "aus"), "pairs that are held out"),
    (("abc", "abcdefghij"), "pairs of unequal lengths"),
]


def config(folder: Path, source: object) -> str:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"data": {"source": to_plain(source)}}))
    return str(file)


def test_each_pair_is_kept_or_counted(tmp_path: Path) -> None:
    train = [KEPT[0], *(pair for pair, _ in LEFT_OUT), *KEPT[1:], ("abc", "abcdefghi")]
    for split, pairs in (("train", train), ("val", [("The held one.", "Gehalten.")])):
        for side, language in enumerate(("en", "de")):
            lines = [pair[side] for pair in pairs]
            (tmp_path / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = {"train": ["train.{language}"], "validation": ["val.{language}"]}
    source = ParallelText(directory=str(tmp_path), files=files)
    (tmp_path / "more.txt").write_text("From another file!\n")
    options = clean.Options(config=config(tmp_path, source), exclude=(str(tmp_path / "more.txt"),))
    made = {name: list(rows) for name, rows in clean.main(options)}
    assert [*made] == ["train.en", "train.de", "left_out.tsv"]
    pairs = [(a, b) for (a,), (b,) in zip(made["train.en"], made["train.de"], strict=True)]
    assert pairs == [*KEPT, ("abc", "abcdefghi")]
    reasons = [reason for _, reason in LEFT_OUT]
    assert dict(made["left_out.tsv"]) == {one: str(reasons.count(one)) for one in reasons}


def test_several_source_languages_are_refused(tmp_path: Path) -> None:
    options = clean.Options(config=config(tmp_path, ParallelText(source_language="ko+zh")))
    with pytest.raises(UserError, match="expected one source language"):
        list(clean.main(options))
