"""Logits by distance beside logits by key: a tile's vectors, and the skew from one to the other.

The distances of Huang et al. (2018, section 3.4), tile by tile, without copies where that can be.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.backends.spans import Tile


class Distances(NamedTuple):
    """Where a tile finds its vectors: one per distance, from `farthest` down to `nearest`.

    phases: how many kinds of queries there are, each with vectors of its own: query i is of kind
    i % phases.
    """

    farthest: int
    nearest: int
    phases: int = 1

    def of(self, tile: Tile) -> tuple[int, int]:
        """First and last + 1 of the vectors that the tile's pairs use."""
        largest = tile.stop - 1 - tile.start
        smallest = max(tile.first - (tile.end - 1), self.nearest)
        return self.farthest - largest, self.farthest - smallest + 1


class Phases(NamedTuple):
    """A tile's queries sorted by their kind, each kind with its own vectors; see `Distances`."""

    kinds: int
    heads: int
    before: int
    """Queries that the tile's first group lacks."""
    queries: int

    @classmethod
    def of(cls, distances: Distances, tile: Tile, heads: int) -> Phases:
        return cls(distances.phases, heads, tile.first % distances.phases, tile.stop - tile.first)

    def vectors(self, table: Tensor, first: int, last: int) -> Tensor:
        """A view of the tile's part: [H, n, E] as it is, [H, F, all, E] -> [H F, n, E]."""
        return table.flatten(0, -3)[:, first:last]

    def apart(self, x: Tensor) -> Tensor:
        """Rows of queries to rows of a head and kind: [N, Q, e] -> [H F, B Q / F, e]."""
        if self.kinds == 1:
            return x.reshape(self.heads, -1, x.shape[-1])  # [H, B Q, e]
        after = -(self.before + self.queries) % self.kinds
        if self.before or after:
            x = F.pad(x, (0, 0, self.before, after))
        groups = x.reshape(self.heads, -1, self.kinds, x.shape[-1])  # [H, B Q / F, F, e]
        return groups.transpose(1, 2).flatten(0, 1)  # [H F, B Q / F, e]

    def together(self, y: Tensor, rows: int) -> Tensor:
        """The way back, to N rows: [H F, B Q / F, e] -> [N, Q, e], contiguous."""
        if self.kinds == 1:
            return y.view(rows, self.queries, y.shape[-1])  # [N, Q, e]
        groups = y.unflatten(0, (self.heads, self.kinds)).transpose(1, 2)  # [H, B Q / F, F, e]
        y = groups.reshape(rows, -1, y.shape[-1])  # [N, Q', e]
        return y[:, self.before : self.before + self.queries].contiguous()  # [N, Q, e]


def skewed(by_distance: Tensor, n_keys: int) -> Tensor:
    """Columns by falling distance to columns by key, as a view: [N, Q, n] -> [N, Q, K].

    The last query's first key has the largest distance, column 0; one query earlier, the same key
    is one column further. Walking along a row's keys therefore begins one column further left in
    each next row: a stride of n - 1. Where n = K (causal) the view runs over into the next row
    above the diagonal; the tile's edge hides what it reads there.
    """
    rows, queries, n = by_distance.shape
    from_first = by_distance.view(-1)[queries - 1 :]  # a compiler follows no storage_offset()
    return from_first.as_strided((rows, queries, n_keys), (queries * n, n - 1, 1))


def unskewed(d_logits: Tensor, n: int) -> Tensor:
    """The transpose of `skewed`: [N, Q, K] by key -> [N, Q, n] by distance."""
    rows, queries, n_keys = d_logits.shape
    if n == n_keys:
        # The copy below fills all but what comes before its first cell.
        by_distance = d_logits.new_empty(rows, queries, n)
        by_distance.view(rows, -1)[:, : queries - 1].zero_()
    else:
        by_distance = d_logits.new_zeros(rows, queries, n)
    if n >= n_keys + queries - 1:  # no row runs over
        skewed(by_distance, n_keys).copy_(d_logits)
        return by_distance
    # Above the diagonal d_logits is zero, and two rows of the view share a cell there: leave the
    # last column out, which only the last query sees.
    shorter = by_distance.as_strided(
        (rows, queries, n_keys - 1), (queries * n, n - 1, 1), queries - 1
    )
    shorter.copy_(d_logits[..., : n_keys - 1])
    by_distance[:, -1, -1] = d_logits[:, -1, -1]
    return by_distance
