"""Batches as item numbers: rows of different lengths, plans of an epoch, batches by length."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

Items: TypeAlias = Sequence[int] | NDArray[np.int64]
"""Item numbers."""


class Ragged:
    """Rows of whole numbers, mapped or in memory; row i is values[offsets[i] : offsets[i + 1]]."""

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
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        """Return a row, without a copy."""
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
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


Batches: TypeAlias = Ragged | Sequence[Items]
"""Item numbers of each batch."""

Plan: TypeAlias = Callable[[int, torch.Generator], Batches]
"""Function of (epoch, generator of seed and epoch) that returns the batches of an epoch."""


def derive_seed(*numbers: int) -> int:
    """Return a seed of 63 bits from whole numbers; their order counts."""
    text = ",".join(str(int(number)) for number in numbers)
    digest = hashlib.blake2b(text.encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator_for(*numbers: int) -> torch.Generator:
    """Return a CPU generator seeded with these numbers."""
    return torch.Generator().manual_seed(derive_seed(*numbers))


def shuffled_batches(n_items: int, batch_size: int) -> Plan:
    """Return a plan that shuffles all items in each epoch; the last batch may be smaller."""
    return lambda epoch, generator: shuffled(range(n_items), generator, batch_size)


def shuffled(items: range, generator: torch.Generator, batch_size: int) -> Ragged:
    """Return the items in random order in batches, as `cut` does."""
    order = torch.randperm(len(items), generator=generator).numpy()
    return cut(items.start + order, batch_size)


PART = 2**20
"""Items that are shuffled together; one plan is in memory at a time."""


def parts(n_items: int) -> list[range]:
    """Return the parts of a data set: PART consecutive items each."""
    return [range(start, min(start + PART, n_items)) for start in range(0, n_items, PART)]


def plan_parts(
    n_items: int, plan: Callable[[range, torch.Generator], Batches], *, seed: int
) -> Plan:
    """Return a plan of one part at a time, in an order of (seed, epoch).

    plan: of a part. The numbers of the parts run on over the epochs, see `ResumableLoader`.
    """
    every = parts(n_items)

    def plan_next(number: int, generator: torch.Generator) -> Batches:
        epoch, turn = divmod(number, len(every))
        order = torch.randperm(len(every), generator=generator_for(seed, epoch, 3)).tolist()
        return plan(every[order[turn]], generator)

    return plan_next


def cut(items: Items | range, batch_size: int) -> Ragged:
    """Return the items in batches of batch_size, in order; the last batch may be smaller."""
    ends = np.minimum(np.arange(0, len(items) + batch_size, batch_size), len(items))
    return Ragged(np.asarray(items, dtype=np.int64), ends)


def batches_by_length(
    items: NDArray[np.int64],
    lengths: NDArray[np.int64],
    max_tokens: int,
    generator: torch.Generator | None,
) -> Ragged:
    """Return batches of neighbouring items, in an order that the generator, if any, shuffles.

    items, lengths [N]: sorted by length, in tokens. max_tokens: of a batch, padding included; a
    longer item is a batch of its own.
    """
    batches = Ragged(items, np.array([*_starts(lengths, max_tokens), len(items)]))
    if generator is None:
        return batches
    shuffled = torch.randperm(len(batches), generator=generator).tolist()
    return Ragged.of(batches[index] for index in shuffled)


def _starts(lengths: NDArray[np.int64], max_tokens: int) -> list[int]:
    """Return the index at which each batch begins; lengths rise, so that the last item's counts."""
    starts: list[int] = []
    start = 0
    while start < len(lengths):
        starts.append(start)
        most = max(1, max_tokens // int(lengths[start]))
        padded = lengths[start : start + most] * np.arange(1, most + 1)[: len(lengths) - start]
        start += max(1, int(np.searchsorted(padded, max_tokens, side="right")))
    return starts
