"""Text as it is typed: harmless replacements, capitals, pieces that are kept, lines of guesses."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import triptych
from triptych.domains.translation.kept import PIECES, Masked, marked_line
from triptych.domains.translation.markup import Pair, Word
from triptych.errors import UserError
from triptych.text.byte_level import BytePairs, Characters
from triptych.text.tokenizer import in_usual_case, readable
from triptych.text.word_piece import WordPiece

ASCII = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,'\"-"


@pytest.fixture(scope="module")
def translator() -> Any:
    return triptych.load("pretrained:multi30k-en-de", device="cpu")


@pytest.mark.parametrize(
    ("typed", "more", "read"),
    [
        ("a\u00a0dog\u2003\u2009runs", "", "a dog runs"),
        ("gui\u00adtar \u200bon\ufeff", "", "guitar on"),
        ("\u201ca\u201d \u2018dog\u2019s\u2019 \u2013", "", "\"a\" 'dog's' -"),
        ("\u201ca\u201d", "\u201c", '"a"'),  # one of the quotes is known
        ("\u201ca\u201d", "\u201c\u201d", "\u201ca\u201d"),
        ("Ａ ﬁsh…", "", "A fish..."),
        ("cafe\u0301", "é", "café"),
        ("café", "\u0301", "cafe\u0301"),
        ("café", "", "café"),  # without an equal
        ("你好，Ａ：", "你，", "你好，A："),
        ("Ａ：", ":", "A:"),
    ],
)
def test_what_is_not_known_is_read_as_its_equal(typed: str, more: str, read: str) -> None:
    assert readable(typed, (ASCII + more).__contains__) == read


@pytest.mark.parametrize("kind", [BytePairs(), Characters(), WordPiece()], ids=str)
def test_a_vocabulary_keeps_what_it_has(kind: Any) -> None:
    lines = ["l\u2019été – “oui”"] * 20
    tokenizer = kind.build(lines, 400, ("<pad>",))
    assert tokenizer.readable(lines[0]) == lines[0]
    read = tokenizer.readable("le\u0301té \u00adoui")
    assert tokenizer.encode(read) == tokenizer.encode("lété oui")
    assert tokenizer.unread_share("été") == 0
    assert tokenizer.unread_share("été собака") == 6 / 9
    assert tokenizer.unread("été со бака\n") == "собака"


@pytest.mark.parametrize(
    "typed", ["A man\u00a0 plays the\u00a0guitar.", "A man plays the gui\u00adtar.", "Ａ man plays"]
)
def test_the_shipped_translator_reads_typography(typed: str, translator: Any) -> None:
    plain = typed.replace("\u00a0", " ").replace("\u00ad", "").replace("  ", " ")
    assert translator.translate([typed]) == translator.translate([plain.replace("Ａ", "A")])


def test_a_line_in_capitals_is_translated(translator: Any) -> None:
    usual = translator.translate(["A man plays the guitar."])[0]
    assert translator.translate(["A MAN PLAYS THE GUITAR."]) == [usual.upper()]

    assert in_usual_case("A DOG RUNS", lambda text: 3) is None, "the vocabulary has capitals"
    assert in_usual_case("USA", len) is None
    assert in_usual_case("BIG DOG", lambda text: 9 if text.isupper() else 4) == "Big dog"


LINES = [
    "Hello {name}, a man plays the guitar.",
    "A man plays %s guitars in %1$d bands &amp; %(place)s.",
    'A <b>man</b> plays<br/> the <span class="x 7">guitar</span>.',
    "A man reads https://example.org/a?b=1 (or www.example.com), says me@example.org.",
    "A man wearing number 4827 runs at 10:30 on 12/05/2020 for 1,000.5 of 7.",
    "1 2 3 4 5 6 7 8 9 {a} {b} dogs run. Two {{c}} run.",
    "{name}",
    "Two dogs run 😀 fast. 👩‍👩‍👧🇰🇷 A ♥️ man runs.",
    "</b>A dog <i>and <b>a</i> cat",
]


def test_pieces_are_found() -> None:
    found = [[piece[0] for piece in PIECES.finditer(line)] for line in LINES]
    assert found[:5] == [
        ["{name}"],
        ["%s", "%1$d", "&amp;", "%(place)s"],
        ["<b>", "</b>", "<br/>", '<span class="x 7">', "</span>"],
        ["https://example.org/a?b=1", "www.example.com", "me@example.org"],
        ["4827", "10:30", "12/05/2020", "1,000.5", "7"],
    ]
    assert [piece[0] for piece in PIECES.finditer(LINES[-2])] == ["😀", "👩‍👩‍👧🇰🇷", "♥️"]
    assert not PIECES.search("A man of some % size, 2nd row, T2, a < b.")


def test_every_piece_is_in_the_translation_once(translator: Any) -> None:
    for line, translation in zip(LINES, translator.translate(LINES, keep=True), strict=True):
        pieces = sorted(piece[0] for piece in PIECES.finditer(line))
        assert sorted(piece[0] for piece in PIECES.finditer(translation)) == pieces, translation


def test_emoji_keep_their_spaces() -> None:
    marked = marked_line("A red 😀 dog runs. 🎉")
    assert marked.text == "A red dog runs. "
    words = [Word(0, 3, 0), Word(4, 8, 2), Word(9, 13, 6), Word(14, 18, 10)]
    pair = Pair(marked.text, "Ein rote Hund lauf", words)
    assert str(marked.of(pair)) == "Ein rote 😀 Hund lauf 🎉"


def test_pieces_come_back_or_the_line_is_divided() -> None:
    masked = Masked.of("A  “red” dog eats {x}.", lambda part: part.replace("  ", " "), "42")
    assert masked is not None
    assert (masked.text, masked.digits) == ("A “red” dog eats 4.", {"4": "{x}"})
    words = [Word(0, 1, 17), Word(2, 6, 12), Word(7, 11, 8), Word(12, 16, 2)]
    found = masked.restored(Pair(masked.text, "4 isst Hund rote", words), "the line")
    assert found is not None
    assert found.text == "{x} isst Hund rote"
    assert found.words == [Word(0, 3, 18), Word(4, 8, 13), Word(9, 13, 9), Word(14, 18, 3)]
    for wrong in ("44 isst", "4 isst 4", "isst"):
        assert masked.restored(Pair(masked.text, wrong, []), "") is None
    assert Masked.of("{a} {b} {c}", str, "42") is None
    assert Masked.of("{a} {b} {c}", str, None) == Masked("{a} {b} {c}", {}, [(0, 0)] + [
        (place, place) for place in (0, 4, 8)
    ])  # fmt: skip


@pytest.mark.parametrize("other", [{"n_best": 2}, {"scores": True}, {"prefix": "A"}])
def test_options_that_do_not_go_with_kept_pieces(other: dict[str, Any], translator: Any) -> None:
    with pytest.raises(UserError, match="keep writes one translation"):
        translator.translate(["A dog."], keep=True, **other)


@pytest.mark.parametrize(("keep", "letters"), [(False, "ж ц"), (True, "щ ю")])
def test_guesses_are_left_or_named(
    keep: bool, letters: str, translator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["A dog runs.", f"Two dogs {letters[0]} run.", letters, ""]
    with caplog.at_level(logging.WARNING):
        translations = translator.translate(lines, keep=keep)
        translator.translate(lines[1:2], keep=keep)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("2 lines ")
    assert f"({letters})" in message
    assert repr(lines[1]) in message
    marked = translator.translate(lines, keep=keep, min_score=-1e9)
    assert marked == [*translations[:2], *lines[2:]]
    assert translator.translate(lines, keep=keep, min_score=1e9) == lines
