"""WordPiece: round trips, special ids, the same ids in every process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from triptych.domains.language.model import N_SPECIALS, SPECIALS
from triptych.text.tokenizer import TextTokenizer
from triptych.text.word_piece import UNKNOWN, WordPiece

LINES = ["A dog runs, and the dogs ran.", "Die Äpfel sind rot!", "running dogs run"] * 3


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return WordPiece().build(LINES, 80, SPECIALS)


def test_words_come_back_without_capitals_and_accents(tokenizer: TextTokenizer) -> None:
    for line, back in (
        ("a  dog runs.", "a dog runs."),
        ("A DOG ran!", "a dog ran!"),
        ("die Äpfel", "die apfel"),
    ):
        assert tokenizer.decode(tokenizer.encode(line)) == back
    cased = WordPiece(lowercase=False).build(LINES, 90, SPECIALS)
    assert cased.decode(cased.encode("Die Äpfel")) == "Die Äpfel"
    korean = WordPiece().build(["나는 학생입니다"] * 3, 80, SPECIALS)
    assert korean.decode(korean.encode("나는 학생입니다")) == "나는 학생입니다"


def test_long_words_and_marks_that_are_letters_are_kept() -> None:
    thai = "นักเรียนกำลังอ่านหนังสืออยู่ในห้องสมุดของโรงเรียนในเมืองใหญ่" * 4
    texts = [thai, "देखता है बिल्ली", "Größe Ελλάδα ñandú", "שָׁלוֹם", "ကျောင်းသား", "а й ё"]
    for lowercase in (True, False):
        words = WordPiece(lowercase).build(texts * 3, 400, SPECIALS)
        assert words.unknown_share(texts) == 0
        backs = [words.decode(words.encode(text)) for text in texts]
        plain = "große ελλαδα nandu" if lowercase else texts[2]
        assert backs == [*texts[:2], plain, *texts[3:]]
    longer = "x" * 3000
    assert WordPiece().build([longer], 30, SPECIALS).unknown_share([longer]) == 0


def test_the_share_of_unknown_tokens(tokenizer: TextTokenizer) -> None:
    assert tokenizer.unknown_share(["a dog ☃", "a dog ☃"]) == pytest.approx(1 / 3)
    assert "33.3% of the tokens are [UNK]" in tokenizer.unknown_sentence(["a dog ☃"])
    assert tokenizer.unknown_sentence(LINES) == ""


def test_special_ids_come_first_and_no_text_has_them(tokenizer: TextTokenizer) -> None:
    assert tokenizer.symbols[: N_SPECIALS + 1] == [*SPECIALS, UNKNOWN]
    for line in (*SPECIALS, UNKNOWN, "[CLS] a [MASK] dog [SEP]"):
        assert min(tokenizer.encode(line)) >= N_SPECIALS
    assert N_SPECIALS in tokenizer.encode("a ☃ dog")
    ids = tokenizer.encode("a dog")
    assert tokenizer.decode([1, *ids, 2, 0, 0]) == "a dog"


def test_a_rare_word_is_several_pieces(tokenizer: TextTokenizer) -> None:
    assert len(tokenizer.encode("dog")) == 1
    pieces = [tokenizer.symbols[token] for token in tokenizer.encode("dogging")]
    assert len(pieces) > 1
    assert all(piece.startswith("##") for piece in pieces[1:])
    assert tokenizer.decode(tokenizer.encode("dogging")) == "dogging"


def test_a_checkpoint_gives_the_same_tokenizer(tokenizer: TextTokenizer) -> None:
    again = TextTokenizer.from_json(tokenizer.to_json(), SPECIALS)
    assert again.symbols == tokenizer.symbols
    assert again.encode_batch(LINES) == tokenizer.encode_batch(LINES)
    assert len(again) == len(tokenizer) <= 80


def test_every_process_learns_the_same_ids(tokenizer: TextTokenizer) -> None:
    code = (
        "from triptych.text.word_piece import WordPiece\n"
        f"print('\\n'.join(WordPiece().build({LINES!r}, 80, {SPECIALS!r}).symbols))"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        assert done.stdout.decode().split("\n")[:-1] == tokenizer.symbols
