"""Text and labelled lines out of docstrings: what is prose, the splits, the three sets."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from triptych.errors import UserError
from triptych.tools import recipes

docstrings = recipes.load("docstrings")
prose = docstrings.read_docstrings.__globals__["prose"]

DOCSTRING = """Return the sum of two numbers.

The sum is computed in double precision. It never
overflows; see `other` [1]_ for more.

Parameters
----------
x : float
    The first number of the sum.
y : float, optional

>>> add(1, 2)
3

.. math:: x + y

short one.
"""


def test_prose_of_a_docstring() -> None:
    assert list(prose(DOCSTRING)) == [
        ("Return the sum of two numbers.",),
        ("The sum is computed in double precision.", "It never overflows; see other for more."),
        ("The first number of the sum.",),
    ]


@pytest.fixture(scope="module")
def files() -> dict[str, list]:
    options = docstrings.Options(packages=("email", "json", "asyncio", "mido"), held_out=0.2)
    return {name: list(rows) for name, rows in docstrings.main(options)}


def documents(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip().split("\n\n")


def test_no_paragraph_is_in_two_splits(files: dict[str, list]) -> None:
    splits = [documents(files[f"{split}.txt"]) for split in ("train", "validation", "test")]
    assert all(len(set(split)) == len(split) > 1 for split in splits)
    assert not set(splits[0]) & {*splits[1], *splits[2]}
    assert not set(splits[1]) & set(splits[2])
    for split, texts in zip(("train", "validation", "test"), splits, strict=True):
        rows = files[f"packages.{split}.tsv"]
        assert [text for text, _ in rows] == [text.replace("\n", " ") for text in texts]
    assert {package for _, package in files["packages.train.tsv"]} >= {"email", "mido"}
    assert dict(files["versions.tsv"])["mido"]


def test_the_right_first_sentence_is_among_the_candidates(files: dict[str, list]) -> None:
    rows = files["choices.train.tsv"]
    first_of = {}
    for text in documents(files["train.txt"]):
        first, _, rest = text.partition("\n")
        first_of.setdefault(rest.replace("\n", " "), []).append(first)
    assert {label for *_, label in rows} == {"1", "2", "3", "4"}
    for body, *candidates, label in rows:
        assert len(set(candidates)) == 4
        assert candidates[int(label) - 1] in first_of[body]


def rows_of(sentences: Iterable[str], known: set[str], window: int | None) -> list:
    return list(docstrings.word_orders(dict.fromkeys(sentences), known, window))


@pytest.mark.parametrize("window", [None, 2])
def test_shuffled_sentences_have_the_words_of_the_original(window: int | None) -> None:
    draw = random.Random(0)
    lines = [" ".join(f"w{draw.randrange(50)}" for _ in range(8)) + "." for _ in range(200)]
    bad = ["too few words.", "same " * 8 + "word.", "long " * 40, "one", ""]
    train = rows_of(lines[:150] + lines[:20] + bad, set(), window)
    test = rows_of(lines[100:], set(lines[:150]), window)
    assert len(train) == 150, "each sentence once"
    assert len(test) == 50, "no sentence of the training"
    for line, (text, label) in zip(lines, [*train, *test], strict=True):
        words, found = line.split(), text.split()
        assert (found == words) == (label == "original")
        assert sorted(found) == sorted(words)
        assert (found[0], found[-1]) == (words[0], words[-1])
        for start in range(1, 7, window or 6):
            group = slice(start, start + (window or 6))
            assert sorted(found[group]) == sorted(words[group])
    labels = [label for _, label in train]
    assert 50 < labels.count("shuffled") < 100


@pytest.mark.parametrize("package", ["no_such_package", "os.path", ""])
def test_a_package_that_is_not_installed_is_refused(package: str) -> None:
    with pytest.raises(UserError, match="is not installed; expected installed packages"):
        dict(docstrings.main(docstrings.Options(packages=(package,))))
