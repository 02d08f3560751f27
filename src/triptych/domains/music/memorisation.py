"""Longest runs that pieces share with the training pieces, as tokens and as intervals.

The search is exact. Prefix doubling (Karp, Miller and Rosenberg 1972; Manber and Myers 1990) ranks
the windows of 2^k symbols of all pieces, for k = 0, 1, ...: two windows are equal where their ranks
are. The last ranks sort all suffixes; the training suffix with the longest common prefix is the
nearest one before or after. O(n log^2 n) for n symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.notes import Ids

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class SharedRun:
    """Longest run of consecutive symbols that a piece shares with a training piece."""

    length: int
    """In symbols; 0 where the two share none."""
    start: int
    """Index of the run's first symbol in the piece."""
    training_piece: int
    """Index of a training piece that contains the run; one of them, where several do."""
    training_start: int
    """Index of its first symbol there."""


def longest_shared_runs(pieces: Sequence[Ids], training: Sequence[Ids]) -> list[SharedRun]:
    """Return the longest run that each piece shares with any of the training pieces.

    pieces, training: symbols of each as whole numbers; at least one piece of both.
    """
    rows = [*training, *pieces]
    ends = np.cumsum([len(row) + 1 for row in rows])  # of each row with its end mark
    # The end mark of each row is a symbol of its own, so that no run goes beyond a row.
    mark = 1 + max(int(row.max(initial=0)) for row in rows)
    text = np.concatenate([np.append(row, mark + number) for number, row in enumerate(rows)])
    starts = np.concatenate([[0], ends[:-1]])
    n_training = int(starts[len(training)])
    queries = np.arange(n_training, len(text))

    levels = _window_numbers(text, longest=max(map(len, pieces)) + 1)
    order = np.argsort(levels[-1], kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    is_training = order < n_training
    places = np.arange(len(order))
    # Index in `order` of the nearest training suffix before and after each place.
    before = np.maximum.accumulate(np.where(is_training, places, -1))
    after = np.minimum.accumulate(np.where(is_training, places, len(order))[::-1])[::-1]

    best, match = np.zeros(len(queries), dtype=np.int64), np.zeros(len(queries), dtype=np.int64)
    for neighbours in (before[rank[queries]], after[rank[queries]]):
        exists = (neighbours >= 0) & (neighbours < len(order))
        other = np.where(exists, order[np.where(exists, neighbours, 0)], 0)  # 0 is in training
        length = np.where(exists, _common_prefix(levels, queries, other), 0)
        longer = length > best
        best, match = np.where(longer, length, best), np.where(longer, other, match)

    runs = []
    for number in range(len(training), len(rows)):
        here = slice(starts[number] - n_training, ends[number] - n_training)
        start = int(best[here].argmax())
        place = match[here][start]
        row = int(np.searchsorted(ends, place, side="right"))
        runs.append(SharedRun(int(best[here][start]), start, row, int(place - starts[row])))
    return runs


def _window_numbers(text: Numbers, *, longest: int) -> list[Numbers]:
    """Return, for k = 0, 1, ..., the rank of each position's window of 2^k symbols.

    Equal windows have equal ranks. Windows that begin near the end of the text are cut there. Stops
    when all ranks differ or windows have at least `longest` symbols.
    """
    levels = [np.unique(text, return_inverse=True)[1].astype(np.int64)]
    width = 1
    while width < longest and levels[-1].max() < len(text) - 1:
        ranks = levels[-1]
        second = np.zeros_like(ranks)
        second[: len(ranks) - width] = ranks[width:] + 1
        pairs = ranks * (len(text) + 1) + second
        levels.append(np.unique(pairs, return_inverse=True)[1].astype(np.int64))
        width *= 2
    return levels


def _common_prefix(levels: list[Numbers], left: Numbers, right: Numbers) -> Numbers:
    """Return the number of symbols that agree from each pair of positions on, [Q]."""
    length = np.zeros(len(left), dtype=np.int64)
    for level in range(len(levels) - 1, -1, -1):
        ranks = levels[level]
        # Never beyond the text: the two suffixes differ at an end mark at the latest.
        length += (ranks[left + length] == ranks[right + length]) * 2**level
    return length
