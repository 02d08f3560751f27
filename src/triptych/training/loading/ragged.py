"""Rows of different lengths in one flat array: sentences, pieces, or the batches of an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Items: TypeAlias = Sequence[int] | NDArray[np.int64]
"""Item numbers."""


class Ragged:
    """Rows of whole numbers; row i is `values[offsets[i] : offsets[i + 1]]`.

    values: [offsets[-1]], in memory or mapped from a file. offsets: int64 [N + 1], rising.
    """

    def __init__(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        self.values = values
        self.offsets = offsets

    @classmethod
    def of(cls, rows: Iterable[Items], dtype: DTypeLike = np.int64) -> Ragged:
        """Return the rows in an array in memory."""
        arrays = [np.asarray(row, dtype) for row in rows]
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0, dtype), *arrays]), offsets)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        """Return a row, without a copy; index: from 0."""
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield the rows in order."""
        return (self[index] for index in range(len(self)))

    def part(self, rows: range) -> Ragged:
        """Return consecutive rows, without a copy."""
        return Ragged(self.values, self.offsets[rows.start : rows.stop + 1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each row, int64 [N]."""
        return np.diff(self.offsets)

    def padded(self, items: Items, fill: int) -> NDArray[np.int64]:
        """Return the rows of these numbers, int64 [B, longest], with `fill` after their ends."""
        chosen = np.asarray(items)
        starts = self.offsets[chosen]  # [B]
        lengths = self.offsets[chosen + 1] - starts  # [B]
        columns = np.arange(lengths.max(initial=0))  # [longest]
        real = columns < lengths[:, None]  # [B, longest]
        rows = np.full(real.shape, fill, dtype=np.int64)  # [B, longest]
        rows[real] = self.values[(starts[:, None] + columns)[real]]
        return rows
