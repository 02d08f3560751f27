"""The tokenizer gives every string back exactly and fits into a checkpoint."""

from __future__ import annotations

import random

import pytest

from triptych.domains.translation.model import END, N_SPECIALS, SPECIALS, START, Tokenizers
from triptych.text.byte_level import BytePairs
from triptych.text.tokenizer import PAD, TextTokenizer

GERMAN = ["Zwei junge Männer sind im Freien.", "Ein Hund läuft über die Wiese.", "Große Straße"] * 9
KOREAN = ["저는 학생입니다.", "그는 괜찮은 척하려고 애쓰는 것 같았다.", "비가 옵니다."] * 9

TRICKY = [
    "Grüße aus Köln, Straße 5!",
    "저는 학생입니다. 안녕하세요?",
    "機器學習，你好。",
    "emoji 🎉👩‍👩‍👧‍👦🇰🇷 end",
    "decomposed: e\u0301 ü \u1112\u1161\u11ab",  # NFD, jamo: a normaliser would compose them
    "ﬁ ｆｕｌｌ ① ½",  # NFKC would rewrite these
    "tab\there  two blanks   three ",
    " leading and trailing ",
    "a\u2028b\x85c\u00a0d\u200be\ufefff",
    "<pad> <start> <end> </s> [PAD] Ġ",
    "line\nfeed\r\n",
    "\x00\x01\x7f",
    "",
]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return BytePairs().build(GERMAN + KOREAN, 350, SPECIALS)


@pytest.mark.parametrize("line", TRICKY)
def test_every_string_comes_back(tokenizer: TextTokenizer, line: str) -> None:
    ids = tokenizer.encode(line)
    assert tokenizer.decode(ids) == line
    assert all(N_SPECIALS <= piece < len(tokenizer) for piece in ids)


def test_random_unicode_comes_back_in_batches(tokenizer: TextTokenizer) -> None:
    draw = random.Random(0)
    ranges = [(0, 0x80), (0x80, 0x3000), (0xAC00, 0xD7A4), (0x1F300, 0x1FAFF), (0xE000, 0x110000)]
    lines = [
        "".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randrange(30)))
        for _ in range(500)
    ]
    assert tokenizer.decode_batch(tokenizer.encode_batch(lines)) == lines


def test_special_ids_stand_for_no_text(tokenizer: TextTokenizer) -> None:
    assert (PAD, START, END) == (0, 1, 2)
    ids = tokenizer.encode("Hund")
    assert tokenizer.decode([START, *ids, END, PAD]) == "Hund"


def test_broken_bytes_decode_to_the_replacement_sign(tokenizer: TextTokenizer) -> None:
    first_byte_of_many = tokenizer.encode("\U0001f389")[0]
    assert tokenizer.decode([first_byte_of_many]) == "\ufffd"


def test_a_small_text_gives_a_small_vocabulary() -> None:
    assert (
        len(BytePairs().build(["ab ab"], 1000, SPECIALS)) == N_SPECIALS + BytePairs.min_pieces + 2
    )


def test_training_twice_gives_the_same_tokenizer() -> None:
    first, second = (BytePairs().build(GERMAN + KOREAN, 400, SPECIALS) for _ in range(2))
    assert first.to_json() == second.to_json()


def test_separate_vocabularies_know_their_own_language() -> None:
    trained = Tokenizers.train(GERMAN, KOREAN, kind=BytePairs(), vocabulary_size=330, shared=False)
    assert len(trained.source.encode("Männer")) < len(trained.target.encode("Männer"))
    assert len(trained.target.encode("학생")) < len(trained.source.encode("학생"))
