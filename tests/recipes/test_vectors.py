"""Word vectors by counting, and out of the binary form of word2vec."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch

from triptych.errors import UserError
from triptych.tools import recipes
from triptych.training.finetune.rows import read_vectors

vectors, word2vec = recipes.load("vectors"), recipes.load("word2vec")
VECTORS = {"one": [0.1, -2.5], "two": [3.0, 1e-3], "the": [0.25, 7.0], "new york": [1.0, 2.0]}


def as_binary(vectors: dict[str, list[float]] = VECTORS) -> bytes:
    rows = [
        word.replace(" ", "_").encode() + b" " + struct.pack(f"<{len(row)}f", *row) + b"\n"
        for word, row in vectors.items()
    ]
    return f"{len(rows)} 2\n".encode() + b"".join(rows)


def lines_of(recipe, tmp_path: Path, **options: object) -> Path:
    ((name, lines),) = recipe.main(recipe.Options(**options))
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_the_text_has_the_numbers_of_the_binary_form(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / ("a.bin.gz" if packed else "a.bin")
    file.write_bytes(gzip.compress(as_binary()) if packed else as_binary())
    path = lines_of(word2vec, tmp_path, file=str(file))
    found = read_vectors(str(path), {"one", "the", "new_york", "absent"}, 2)
    assert found.keys() == {"one", "the", "new_york"}
    for word, vector in found.items():
        assert torch.equal(vector, torch.tensor(VECTORS[word.replace("_", " ")]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"one 1 2\n", "does not begin with two numbers"),
        (as_binary()[:-4], "ends within word 4"),
        (as_binary().replace(b"one", b"\xff\xfe"), "word 1 is not UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_damaged_files_are_told_with_their_place(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "a.bin"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=said):
        lines_of(word2vec, tmp_path, file=str(file))


def test_words_of_the_same_neighbours_have_similar_vectors(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    pets = [f"the {pet} sleeps in the house" for pet in ("cat", "dog")]
    text.write_text("\n".join([*pets, "a ship sails on seas", "a boat sails on seas"] * 5))
    path = lines_of(vectors, tmp_path, texts=(str(text),), size=4)
    found = read_vectors(str(path), {"cat", "dog", "ship", "boat"}, 4)
    similar = torch.cosine_similarity
    assert similar(found["cat"], found["dog"], 0) > 0.9
    assert similar(found["cat"], found["ship"], 0) < 0.5
    with pytest.raises(UserError, match="size is 100; expected at most"):
        lines_of(vectors, tmp_path, texts=(str(text),), size=100)
