"""Rows of different lengths come back from one flat array, and are padded as by hand."""

from __future__ import annotations

import numpy as np
import pytest

from triptych.training.loading.batches import Ragged

ROWS = [[5, 6], [], [7], list(range(100)), []]


def test_rows_come_back() -> None:
    flat = Ragged.of(ROWS, np.uint16)
    assert [row.tolist() for row in flat] == ROWS
    assert flat.lengths.tolist() == [2, 0, 1, 100, 0]
    assert flat[3].base is not None, "a row is a view"
    for outside in (-1, 5):
        with pytest.raises(IndexError, match="of 5"):
            flat[outside]
    assert list(Ragged.of([])) == []


@pytest.mark.parametrize("items", [[0], [3, 0, 2], [1, 4], [2, 2], range(5)])
def test_padding_is_behind_the_rows(items: list[int]) -> None:
    longest = max(len(ROWS[item]) for item in items)
    by_hand = [ROWS[item] + [-1] * (longest - len(ROWS[item])) for item in items]
    padded = Ragged.of(ROWS, np.uint16).padded(items, -1)
    assert padded.dtype == np.int64
    assert padded.tolist() == by_hand
