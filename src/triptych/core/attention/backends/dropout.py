"""Dropout of attention weights in tiles: random numbers are drawn once and read many times."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LEVELS = 256
"""A weight is kept by one random byte, so shares are multiples of 1/256 (0.1 becomes 26/256)."""
ROW_STEP = 1009
TILE_STEP = 127
TILE_STARTS = ROW_STEP * TILE_STEP
"""The steps have no common divisor: up to 1009 tiles of any number of rows begin each elsewhere."""


class Dropped(NamedTuple):
    """Which weights are dropped, as factors: 0, or 1 / (1 - share) so that the mean stays.

    Drawing a number for each weight takes longer than the attention itself on a CPU. Here a pool of
    factors is drawn for one tile of one row (a head of one sentence), a little larger than it, and
    each tile and row reads it from another place: the factors of a row's tile are independent of
    each other, and the same factor meets unrelated weights elsewhere.
    """

    pool: Tensor

    @classmethod
    def draw(cls, share: float, rows: int, largest: int, like: Tensor) -> Dropped | None:
        """Factors for tiles of at most `largest` weights in `rows` rows in all; None for none."""
        threshold = round(share * LEVELS)
        if threshold == 0:
            return None
        size = largest + rows * ROW_STEP + TILE_STARTS
        # 0 or 1 in their place: to compare into booleans takes four times as long.
        kept = random_bytes(size, like.device).ge_(threshold)
        return cls(kept.to(like.dtype).mul_(LEVELS / (LEVELS - threshold)))

    def factors(self, like: Tensor, tile: int, first: int) -> Tensor:
        """Of the weights [N, Q, K] of a tile, by its number and its first row: a view [N, Q, K]."""
        keys = like.shape[-1]
        start = tile * TILE_STEP % TILE_STARTS + first * ROW_STEP
        return self.pool.as_strided(like.shape, (ROW_STEP, keys, 1), start)


def random_bytes(n: int, device: torch.device) -> Tensor:
    """At least n random bytes from the generator of the device, uint8, 8 from each draw."""
    lowest, draws = -(2**63), -(-n // 8)
    if torch.compiler.is_compiling():
        # What a compiler can follow; it divides, and takes twice as long.
        numbers = torch.randint(lowest, -lowest - 1, (draws,), dtype=torch.int64, device=device)
    else:
        numbers = torch.empty(draws, dtype=torch.int64, device=device).random_(lowest, None)
    return numbers.view(torch.uint8)
