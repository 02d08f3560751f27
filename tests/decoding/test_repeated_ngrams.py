"""Repeated n-grams by their definition, and constraints that yield."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from triptych.decoding.constraints import ByPriority, NoRepeatedNgrams

N_TOKENS = 3


def slow(row: list[int], n: int) -> list[bool]:
    """Which token completes an n-gram of tokens that the row has."""
    runs = [tuple(row[start : start + n]) for start in range(len(row) - n + 1)]
    runs = [run for run in runs if min(run) >= 0]
    return [tuple([*row, token][-n:]) in runs for token in range(N_TOKENS)]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("lowest", [0, -1])
def test_repeated_ngrams_are_those_of_the_definition(n: int, lowest: int) -> None:
    generator = torch.Generator().manual_seed(n)
    found = 0
    for length in range(12):
        values = torch.randint(lowest, N_TOKENS, (40, length), generator=generator)
        forbidden = NoRepeatedNgrams(n, N_TOKENS)(values)
        assert forbidden.tolist() == [slow(row, n) for row in values.tolist()]
        found += int(forbidden.sum())
    assert found


class Always:
    """Forbids given tokens in each row."""

    def __init__(self, rows: list[list[bool]]) -> None:
        self.rows = torch.tensor(rows)

    def __call__(self, values: Tensor) -> Tensor:
        return self.rows


def test_a_constraint_yields_in_the_rows_in_which_nothing_would_be_left() -> None:
    first = Always([[True, False, False], [True, False, False], [True, True, True]])
    second = Always([[False, True, False], [False, True, True], [False, False, False]])
    third = Always([[False, False, True], [False, True, False], [False, False, False]])
    forbidden = ByPriority([first, second, third])(torch.zeros(3, 0, dtype=torch.int64))
    assert forbidden.tolist() == [
        [True, True, False],  # the third one yields
        [True, True, False],  # the second one yields, the third one does not
        [True, True, True],  # the first one never yields
    ]
