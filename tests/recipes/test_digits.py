"""Strings of digits: what the tasks ask for, lengths of the splits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from triptych.tools import recipes

digits = recipes.load("digits")


def pairs(**settings: Any) -> dict[str, list[tuple[str, str]]]:
    """The rows of each file without its header."""
    options = {"train_size": 2_000, "validation_size": 50, "test_size": 50} | settings
    files = {name: list(rows) for name, rows in digits.main(digits.Options(**options))}
    assert {tuple(rows[0]) for rows in files.values()} == {("source", "target")}
    return {name.removesuffix(".tsv"): rows[1:] for name, rows in files.items()}


def test_targets_are_copies_reversals_and_sums() -> None:
    found = pairs()
    assert all(source.isdigit() and target == source for source, target in found["copy/train"])
    assert all(target == source[::-1] for source, target in found["reverse/train"])
    for source, target in found["addition/train"]:
        first, second = source.split("+")
        assert int(first) + int(second) == int(target)
        assert len(first) == len(second) == len(target) - 1


def test_lengths_and_digits_are_uniform() -> None:
    sources = [source for source, _ in pairs(min_digits=3, max_digits=6)["copy/train"]]
    lengths = Counter(map(len, sources))
    assert set(lengths) == {3, 4, 5, 6}
    assert all(abs(count / 2_000 - 0.25) < 0.05 for count in lengths.values())
    counts = Counter("".join(sources))
    assert all(abs(counts[d] / counts.total() - 0.1) < 0.02 for d in "0123456789")


@pytest.mark.parametrize("task", ["copy", "addition"])
def test_a_split_of_a_length_has_this_length_alone(task: str) -> None:
    found = pairs(test_digits=(7, 23))
    for n in (7, 23):
        rows = found[f"{task}/test-{n}"]
        assert len(rows) == 50
        assert {len(first.split("+")[0]) for first, _ in rows} == {n}


def test_splits_differ_and_depend_on_the_seed() -> None:
    found = pairs(min_digits=9)
    assert found == pairs(min_digits=9)
    assert not set(found["copy/train"]) & set(found["copy/validation"])
    assert pairs(min_digits=9, seed=1)["copy/test"] != found["copy/test"]
