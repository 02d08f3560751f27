"""Word vectors: formats, exact copies, words of tokenizers, and damaged files."""

from __future__ import annotations

import gzip

import pytest
import torch
from torch import nn

from triptych.domains.translation.model import SPECIALS
from triptych.errors import UserError
from triptych.text.byte_level import BytePairs, Words
from triptych.text.word_piece import WordPiece
from triptych.training.finetune.rows import WordRows, place_vectors, read_vectors

VECTORS = {"one": [0.1, -2.5], "two": [3.0, 1e-3], "the": [0.25, 7.0], "new york": [1.0, 2.0]}


def as_text(vectors: dict[str, list[float]] = VECTORS) -> str:
    return "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in vectors.items())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("glove.txt", as_text().encode()),
        ("word2vec.txt", b"4 2\n" + as_text().encode()),
        ("glove.txt.gz", gzip.compress(as_text().encode(), mtime=0)),
        ("tabs.txt", as_text().replace(" ", "\t").replace("w\ty", "w y").encode()),
        ("bom.txt", b"\xef\xbb\xbf" + as_text().encode()),
    ],
)
def test_every_format_gives_the_same_vectors(name, content, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    found = read_vectors(str(path), {"one", "the", "new york", "absent"}, 2)
    assert found.keys() == {"one", "the", "new york"}
    for word, vector in found.items():
        assert torch.equal(vector, torch.tensor(VECTORS[word]))


def test_of_equal_words_the_first_counts(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("one 1 2\none 3 4\n")
    assert read_vectors(str(path), {"one"}, 2)["one"].tolist() == [1, 2]


def test_rows_are_copied_exactly_and_others_stay(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(as_text())
    table = nn.Parameter(torch.randn(6, 2))
    before = table.detach().clone()
    words = [None, "two", "The", "absent", "one", "two"]  # a word may have two tokens
    fixed = place_vectors(WordRows(table, words), str(path))
    assert fixed.rows.tolist() == [1, 2, 4, 5]
    for row, word in {1: "two", 2: "the", 4: "one", 5: "two"}.items():
        assert torch.equal(table[row], torch.tensor(VECTORS[word]))
    assert torch.equal(table[[0, 3]], before[[0, 3]])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b"one 1 2\ntwo 1\n", "line 2 is no word and 2 numbers"),
        ("a.txt", b"\n", "line 1 is no word"),
        ("a.txt", b"one 1 x\n", "line 1 is no word"),
        ("a.txt", b"two 1 2\none 1 nan\n", "line 2 is no word"),
        (
            "a.txt.gz",
            gzip.compress(as_text().encode(), mtime=0)[:10] + b"damaged",
            "cannot be read",
        ),
        ("a.txt", b"one 1 2\n\xff\xfe 1 2\n", "line 2 is no word.*in UTF-8"),
        ("a.txt.gz", b"one 1 2\n", "cannot be read"),
        ("a.bin", b"1 2\none \0\1\2\3\4\5\6\7\n", "`triptych data make word2vec` writes"),
    ],
)
def test_damaged_files_are_told_with_their_place(name, content, said, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as error:
        read_vectors(str(path), {"one"}, 2)
    assert str(path) in str(error.value)


def test_a_file_without_a_word_of_the_vocabulary_is_refused(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(as_text())
    with pytest.raises(UserError, match="none of the 1 words"):
        place_vectors(WordRows(nn.Parameter(torch.zeros(2, 2)), [None, "drei"]), str(path))
    path.write_text("drei 1 2 3\n")
    with pytest.raises(UserError, match="has it other than 2 numbers a word"):
        place_vectors(WordRows(nn.Parameter(torch.zeros(2, 2)), [None, "drei"]), str(path))


def test_whole_words_of_each_kind_of_tokenizer():
    lines = ["the cat sat on the mat", "the dogs sat"] * 4
    words = Words(min_count=1).build(lines, 50, SPECIALS).words
    assert {"the", "cat", "dogs"} <= set(words)
    assert words[:3] == [None] * 3
    pairs = BytePairs().build(lines, 300, SPECIALS)
    for symbol, word in zip(pairs.symbols, pairs.words, strict=True):
        assert (word is not None) == (symbol.startswith("Ġ") and symbol != "Ġ"), symbol
    pieces = WordPiece().build(lines, 60, SPECIALS)
    for symbol, word in zip(pieces.symbols, pieces.words, strict=True):
        assert word == (None if symbol.startswith(("##", "[", "<")) else symbol)
