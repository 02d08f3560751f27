"""Which keys a query of a sequence reaches, and the tiles that cover just those pairs."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from triptych.core.processor import has_matrix_units


class Edge(NamedTuple):
    """A run of a tile's keys that not every query of the tile may see."""

    first: int
    """The run's first key, counted from the tile's first."""
    hidden: Tensor
    """Bool [Q, keys of the run], True where the key is hidden from the query."""


class Tile(NamedTuple):
    """Queries first..stop-1 over keys start..end-1; every other key is hidden from them."""

    first: int
    stop: int
    start: int
    end: int
    edges: tuple[Edge, ...] = ()


class Reach(NamedTuple):
    """How far a query sees; None for without an end."""

    before: int | None = None
    """Positions before the query, or before the run that it lies in."""
    after: int | None = 0
    """Positions after the query; 0 is causal."""
    run: int = 1
    """Length of the runs that `before` counts from: 1 for the query itself."""

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        """True where the query at one position sees the key at the other."""
        visible = torch.ones_like(key <= query)
        if self.before is not None:
            visible = visible & (key >= query // self.run * self.run - self.before)
        if self.after is not None:
            visible = visible & (key <= query + self.after)
        return visible

    def hides(self, queries: range, keys: range) -> bool:
        """Whether one of the queries does not see one of the keys; asks no tensor."""
        if self.before is not None and keys[0] < queries[-1] // self.run * self.run - self.before:
            return True
        return self.after is not None and keys[-1] > queries[0] + self.after

    def keys_of(self, first: int, stop: int, length: int) -> tuple[int, int]:
        """First and last + 1 of the keys that queries first..stop-1 of one run see together."""
        start = 0 if self.before is None else first // self.run * self.run - self.before
        end = length if self.after is None else stop + self.after
        return max(0, start), min(length, end)


def queries_per_tile(length: int, like: Tensor) -> int:
    """How many queries a tile has.

    Fewer mean more small products, more mean tiles that leave the cache and a wider masked edge.
    Full attention, forward and backward, 8 heads of 64, two cores with AVX512-BF16, milliseconds at
    32 / 64 / 128 / 256 queries, before weights were kept: float32, L 1024: 30 / 29 / 30 / 43;
    bfloat16, L 1024: 34 / 23 / 17 / 17, L 4096: - / 352 / 272 / 211. With AMX, relative attention,
    L 1024, at 64 / 128 / 256 / 512: float32 64 / 60 / 70 / 74, bfloat16 65 / 51 / 42 / 44. On a
    GPU, where a tile is a few launches, not measured: few large ones.
    """
    if like.device.type != "cpu":
        return 512
    with_amx = has_matrix_units()
    if like.element_size() > 2:
        return 128 if with_amx else 64
    return 128 if length < (768 if with_amx else 2048) else 256


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # kept for a training step, whoever asks first
def tiles_over(reach: Reach, length: int, queries: int, device: torch.device) -> tuple[Tile, ...]:
    """Tiles of at most so many queries that cover a sequence; a tile never crosses a run."""
    tiles = []
    first = 0
    while first < length:
        stop = min(first + queries, length)
        if reach.run > 1:
            stop = min(stop, (first // reach.run + 1) * reach.run)
        start, end = reach.keys_of(first, stop, length)
        query = torch.arange(first, stop).unsqueeze(1)  # [Q, 1]
        edges = []
        # What a query sees moves by one key a query, so a tile of Q queries hides keys from some
        # of them only among its first Q and its last Q.
        width = stop - first
        runs = [(start, start + width), (end - width, end)]
        if end - start <= 2 * width:
            runs = [(start, end)]
        for left, right in runs:
            if reach.hides(range(first, stop), range(left, right)):
                hidden = ~reach.visible(query, torch.arange(left, right))  # [Q, keys]
                edges.append(Edge(left - start, hidden.to(device)))
        tiles.append(Tile(first, stop, start, end, tuple(edges)))
        first = stop
    return tuple(tiles)
