"""Traditional Chinese characters are read as simplified ones, by a table in the checkpoint."""

from __future__ import annotations

import sys

import pytest

from triptych.domains.translation.data import EncodedPairs
from triptych.domains.translation.model import Tokenizers
from triptych.errors import UserError
from triptych.text.byte_level import BytePairs
from triptych.text.simplified import SimplifiedChinese, simplified_characters

opencc = pytest.importorskip("opencc")

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


def tokenizers(*, shared: bool = True) -> Tokenizers:
    sources = [word for pair in WORDS.items() for word in pair]
    kind = SimplifiedChinese(BytePairs())
    return Tokenizers.train(sources, ENGLISH, kind=kind, vocabulary_size=320, shared=shared)


@pytest.mark.parametrize("shared", [True, False])
def test_both_scripts_have_the_same_ids(shared: bool) -> None:
    found = tokenizers(shared=shared)
    traditional, simplified = map(list, (WORDS, WORDS.values()))
    assert found.source.encode_batch(traditional) == found.source.encode_batch(simplified)
    assert found.source.decode_batch(found.source.encode_batch(traditional)) == simplified
    rows = EncodedPairs.of([("機器學習", "machine learning")], found).sources
    assert found.source.decode(rows[0]) == "机器学习"  # what training and evaluation read


def test_other_text_comes_back() -> None:
    found = tokenizers().source
    assert found.decode(found.encode(OTHER_TEXT)) == OTHER_TEXT


def test_characters_are_those_of_opencc() -> None:
    table = simplified_characters()
    convert = opencc.OpenCC("t2s").convert
    for code in range(0x4E00, 0xA000):
        assert chr(code).translate(table) == convert(chr(code))
    simplified = "".join(WORDS.values())
    assert simplified.translate(table) == simplified


def test_vocabulary_is_learnt_from_simplified_text() -> None:
    found = tokenizers()
    plain = Tokenizers.train(
        [word for word in WORDS.values() for _ in range(2)],
        ENGLISH,
        kind=BytePairs(),
        vocabulary_size=320,
        shared=True,
    )
    assert found.source.symbols == plain.source.symbols


def test_checkpoint_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tokenizers()
    plain = found.to_plain()
    monkeypatch.setitem(sys.modules, "opencc", None)
    read = Tokenizers.from_plain(plain)
    assert read.shared
    assert read.source.encode("機器學習") == found.source.encode("机器学习")
    assert read.to_plain() == plain
    with pytest.raises(UserError, match="opencc"):
        tokenizers()


def test_a_prefix_in_traditional_characters_cannot_be_written() -> None:
    found = tokenizers().target
    assert found.can_write("机器学")
    assert not found.can_write("機器學")
    assert found.knows("机器")
    assert not found.knows("機器")
