"""Pairs of a dictionary: each rule by an entry of its own, held-out text, damaged lines."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import pytest
import yaml

from triptych.config.schema import to_plain
from triptych.domains.translation.sources import ParallelText
from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.tools import recipes

cedict = recipes.load("cedict")

DICTIONARY = """# a comment
貓屋 猫屋 [mao1 wu1] /cat house/home of cats/
學車 学车 [xue2 che1] /to learn driving; driver's course (formal; rare)/CL:個|个[ge4]/
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    for split, (zh, en) in {"train": ("猫", "cat"), "val": ("狗屋。", "Red dog!")}.items():
        (tmp_path / f"{split}.zh").write_text(f"{zh}\n", encoding="utf-8")
        (tmp_path / f"{split}.en").write_text(f"{en}\n")
    files = {"train": ["train.{language}"], "validation": ["val.{language}"]}
    source = ParallelText("zh", "en", directory=str(tmp_path), files=files)
    name = tmp_path / "config.yaml"
    name.write_text(yaml.safe_dump({"data": {"source": to_plain(source)}}))
    return str(name)


def made(
    config: str, dictionary: str, **options: Any
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    file = Path(config).with_name("dictionary.txt.xz")
    file.write_bytes(lzma.compress(dictionary.encode()))
    chosen = cedict.Options(dictionary=str(file), config=config, **options)
    files = {name: list(rows) for name, rows in cedict.main(chosen)}
    assert files["pairs.tsv"][0] == ("source", "target")
    return files["pairs.tsv"][1:], dict(files["left_out.tsv"])


def test_glosses_become_pairs_in_both_scripts(config: str) -> None:
    cat = [(form, gloss) for gloss in ("cat house", "home of cats") for form in ("猫屋", "貓屋")]
    learn = [("学车", "to learn driving"), ("學車", "to learn driving")]
    pairs, left_out = made(config, DICTIONARY)
    assert pairs == cat + learn
    assert left_out == {"glosses with brackets": "2"}
    assert made(config, DICTIONARY, traditional=False)[0] == (cat + learn)[::2]


@pytest.mark.parametrize(
    ("gloss", "reason"),
    [
        ("(old) cat", "glosses with brackets"),
        ("variant of 猫屋", "references to other entries"),
        ("abbr. for cat house", "references to other entries"),
        ("see dog", "references to other entries"),
        ("surname Mao", "surnames"),
        ("used in names", "notes on use"),
        ("CL:cat", "notes on use"),
        ("expressing surprise", "notes on use"),
        ("to feed sb", "glosses with alternatives or placeholders"),
        ("cat or dog", "glosses with alternatives or placeholders"),
        ("cat, dog", "glosses with marks, digits or letters of other scripts"),
        ("the house of a cat", "glosses of too many words"),
        ("Cat Town", "names"),
    ],
)
def test_a_gloss_is_left_out_for_one_reason(config: str, gloss: str, reason: str) -> None:
    line = f"屋 屋 [Wu1] /{gloss}/seesaw; express train/"
    assert made(config, line) == ([("屋", "seesaw"), ("屋", "express train")], {reason: "1"})


def test_options_widen_the_choice(config: str) -> None:
    line = "屋 屋 [Wu1] /Cat Town/the house of a cat/house/home/"
    pairs, left_out = made(config, line, names=True, max_words=5)
    assert [gloss for _, gloss in pairs] == ["Cat Town", "the house of a cat", "house"]
    assert left_out == {"glosses after the first ones": "1"}


def test_a_capital_alone_is_no_name(config: str) -> None:
    assert made(config, "週一 周一 [zhou1 yi1] /Monday/", traditional=False)[0] == [
        ("周一", "Monday")
    ]


def test_forms_of_several_readings_are_left_out(config: str) -> None:
    lines = "行 行 [hang2] /row/\n行 行 [xing2] /to walk/\n王 王 [Wang2] /surname Wang/\n"
    pairs, left_out = made(config, lines + "王 王 [wang2] /king/")
    assert pairs == [("王", "king")], "the reading without a gloss counts for nothing"
    assert left_out == {"entries of one form with several readings": "2", "surnames": "1"}


def test_damaged_lines_cost_nothing_else(config: str) -> None:
    damaged = ["貓屋 猫屋 /cat house/", "猫", "貓屋 猫屋 [mao1 wu1] cat", "T恤 T恤 [T xu4] /shirt/"]
    pairs, left_out = made(config, "\n".join([*damaged, "", DICTIONARY]))
    assert pairs == made(config, DICTIONARY)[0]
    assert left_out.pop("entries with other signs than Chinese characters") == "1"
    assert left_out == {"damaged lines": "3", "glosses with brackets": "2"}


def test_held_out_sentences_are_in_no_pair(config: str, tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("貓\nHouse, home!\n", encoding="utf-8")
    lines = "狗屋 狗屋 [gou3] /kennel/\n狗 狗 [gou3] /red dog/dog/\n貓 猫 [mao1] /house home/cat/"
    pairs, left_out = made(config, lines, exclude=(str(more),))
    assert pairs == [("狗", "dog"), ("猫", "cat")]
    assert left_out == {"pairs with a held-out sentence": "5"}


def test_a_damaged_xz_file_is_one_sentence(tmp_path: Path) -> None:
    content = lzma.compress(b"line\n" * 99)
    for damaged in (content[:-20], content[:9]):
        (tmp_path / "a.xz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"a\.xz is not a complete xz file"):
            read_lines(tmp_path / "a.xz")
