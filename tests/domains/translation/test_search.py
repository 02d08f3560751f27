"""A line longer than the training pairs is translated in pieces that the model can read."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from triptych.decoding.constraints import BEGIN
from triptych.domains.translation.domain import TranslationRequest
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.lines import split_long
from triptych.domains.translation.model import SPECIALS
from triptych.domains.translation.search import TokenConstraints
from triptych.domains.translation.task import TranslationTrainingModule
from triptych.errors import UserError
from triptych.text.byte_level import BytePairs
from triptych.text.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def bytes_only() -> TextTokenizer:
    return BytePairs().build([""], 259, SPECIALS)


def test_sentences_are_kept_whole(bytes_only: TextTokenizer) -> None:
    line = 'One, two.  Three 4.5? "Yes!" (No.) End'
    assert split_long(line, bytes_only, len(line)) == [line]
    expected = ["One, two.", "Three 4.5?", '"Yes!"', "(No.)", "End"]
    assert split_long(line, bytes_only, 12) == expected
    assert split_long("机器学习。你好！好", bytes_only, 20) == ["机器学习。", "你好！", "好"]


@pytest.mark.parametrize(
    ("line", "halves"),
    [
        ("aa bbbbbb cccccc", ["aa bbbbbb", "cccccc"]),  # spaces at 2 and 9, the middle is 8
        ("aaaaaa bbbbbb cc", ["aaaaaa", "bbbbbb cc"]),  # at 6 and 13
        ("aaaaaaabbbbbbb", ["aaaaaaa", "bbbbbbb"]),
    ],
)
def test_a_long_sentence_is_halved_near_its_middle(
    bytes_only: TextTokenizer, line: str, halves: list[str]
) -> None:
    assert split_long(line, bytes_only, 10) == halves


def test_every_piece_fits_and_no_letter_is_lost(bytes_only: TextTokenizer) -> None:
    draw = random.Random(0)
    for _ in range(200):
        letters = draw.choices("ab cü여.! ", k=draw.randrange(1, 120))
        line, limit = "".join(letters).strip() or "a", draw.randrange(4, 40)
        pieces = split_long(line, bytes_only, limit)
        assert all(piece.strip() for piece in pieces)
        assert all(len(bytes_only.encode(piece)) <= limit for piece in pieces)
        assert "".join(pieces).replace(" ", "") == line.replace(" ", "")
    words = "seven " * 100
    assert all(piece.strip().split() == ["seven"] * len(piece.split())
               for piece in split_long(words, bytes_only, 30))  # fmt: skip


def test_a_long_line_joins_the_translations_of_its_sentences(
    taught: TranslationTrainingModule,
) -> None:
    config = replace(taught.config, data=replace(taught.config.data, max_length=12))
    translator = TranslationModel.of_run(config, taught.model, taught.tokenizers)
    sentences = ["nine hundred and ninety-nine.", "seven hundred and five.", "six hundred."]
    line = " ".join(sentences)
    lengths = [len(ids) for ids in taught.tokenizers.source.encode_batch([line, *sentences])]
    assert lengths[0] > 11 >= max(lengths[1:])
    lines = ["five", line, "", "seven"]
    found = translator.translate(lines, beam=2)
    parts = translator.translate(["five", *sentences, "seven"], beam=2)
    assert found == [parts[0], " ".join(parts[1:4]), "", parts[4]]
    calls: list[tuple[int, int]] = []
    best = translator.translate(lines, beam=2, n_best=2, progress=lambda *done: calls.append(done))
    assert [row[0] for row in best] == found
    assert best[1][1] == " ".join(
        row[1] for row in translator.translate(sentences, beam=2, n_best=2)
    )
    assert calls[-1] == (6, 6)


def test_a_prefix_and_phrases_have_tokens_that_a_translation_may_have(
    bytes_only: TextTokenizer,
) -> None:
    def prepared(language: str = "de", **wanted: Any) -> TokenConstraints:
        return TokenConstraints(TranslationRequest(**wanted), bytes_only, language=language)

    encode = bytes_only.encode
    assert prepared(require=("ab",)).phrases == [[encode(" ab"), [BEGIN, *encode("ab")]]]
    assert prepared("zh", require=("ab",)).phrases == [[encode("ab")]]
    prepared(require=("aba",), prefix="xyx", no_repeat_ngram=2)
    for wrong in ({"require": ("abab",)}, {"prefix": "xy xy xy z"}):
        with pytest.raises(UserError, match="no_repeat_ngram forbids"):
            prepared(**wrong, no_repeat_ngram=2)
    both = {"require": ("abc",), "prefix": "xyz"}
    assert prepared(**both, max_length=7).n_tokens == 7, "a phrase begins after a space"
    with pytest.raises(UserError, match="max_length, which is 6"):
        prepared(**both, max_length=6)
    assert prepared(require=("abc",), prefix="abcd", max_length=4).n_tokens == 4
