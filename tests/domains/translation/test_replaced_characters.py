"""Characters that are read as others, by a table in the checkpoint: simplified Chinese."""

from __future__ import annotations

from pathlib import Path

import pytest

from triptych.domains.translation.data import EncodedPairs
from triptych.domains.translation.model import Tokenizers
from triptych.errors import UserError
from triptych.text.byte_level import BytePairs, ReplacedCharacters

# By hand: the same words in both scripts, as dictionaries print them.
WORDS = {
    "機器學習": "机器学习",
    "漢語": "汉语",
    "臺灣": "台湾",
    "頭髮": "头发",
    "發現": "发现",
    "圖書館": "图书馆",
}
ENGLISH = ["machine learning", "Chinese", "Taiwan", "hair", "to find", "library"]
OTHER_TEXT = "机器学习 저는 학생입니다. ガラス Straße 🎉 e\u0301"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pairs = [pair for words in WORDS.items() for pair in zip(*words, strict=True)]
    rows = {f"{before}\t{after}\n" for before, after in pairs if before != after}
    path = tmp_path / "characters.tsv"
    path.write_text("character\tread_as\n" + "".join(sorted(rows)), encoding="utf-8")
    return path


def tokenizers(table: Path, *, shared: bool = True) -> Tokenizers:
    sources = [word for pair in WORDS.items() for word in pair]
    kind = ReplacedCharacters(str(table), BytePairs())
    return Tokenizers.train(sources, ENGLISH, kind=kind, vocabulary_size=320, shared=shared)


@pytest.mark.parametrize("shared", [True, False])
def test_both_scripts_have_the_same_ids(table: Path, shared: bool) -> None:
    found = tokenizers(table, shared=shared)
    traditional, simplified = map(list, (WORDS, WORDS.values()))
    assert found.source.encode_batch(traditional) == found.source.encode_batch(simplified)
    assert found.source.decode_batch(found.source.encode_batch(traditional)) == simplified
    rows = EncodedPairs.of([("機器學習", "machine learning")], found).sources
    assert found.source.decode(rows[0]) == "机器学习"  # what training and evaluation read


def test_other_text_comes_back(table: Path) -> None:
    found = tokenizers(table).source
    assert found.decode(found.encode(OTHER_TEXT)) == OTHER_TEXT


def test_vocabulary_is_learnt_from_simplified_text(table: Path) -> None:
    found = tokenizers(table)
    plain = Tokenizers.train(
        [word for word in WORDS.values() for _ in range(2)],
        ENGLISH,
        kind=BytePairs(),
        vocabulary_size=320,
        shared=True,
    )
    assert found.source.symbols == plain.source.symbols


def test_checkpoint_needs_no_table(table: Path) -> None:
    found = tokenizers(table)
    plain = found.to_plain()
    table.unlink()
    read = Tokenizers.from_plain(plain)
    assert read.shared
    assert read.source.encode("機器學習") == found.source.encode("机器学习")
    assert read.to_plain() == plain


def test_a_table_that_cannot_be_read_is_refused(table: Path) -> None:
    table.write_text("character\tread_as\n機器\t机\n", encoding="utf-8")
    with pytest.raises(UserError, match="'機器' read as '机'; expected single characters"):
        tokenizers(table)
    table.unlink()
    with pytest.raises(UserError, match="does not exist"):
        tokenizers(table)


def test_a_prefix_in_traditional_characters_cannot_be_written(table: Path) -> None:
    found = tokenizers(table).target
    assert found.knows("机器学")
    assert not found.knows("機器學")
