"""Mask patterns: which keys a query sees, as a function of two positions; layout of the cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.positions import GenerationOrder

Position = TypeVar("Position", int, Tensor)
Rule: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Whether queries see keys, see `MaskPattern.visible`."""
COUNTED_TOGETHER = 512
"""Queries whose visible keys are counted at a time."""
UNLIMITED = 2**30
"""A window longer than any sequence; a sum of two positions still fits 32 bits."""


class CacheLayout(nn.Module):
    """A ring of slots for keys. A query sees itself and `reach` - 1 positions before; None: all."""

    def __init__(self, reach: int | None = None) -> None:
        super().__init__()
        self.reach = reach

    def n_slots(self, max_length: int, lookahead: int = 0) -> int:
        """Slots to decode `max_length` positions; lookahead as in `init_cache` of a layer."""
        return max_length if self.reach is None else min(self.reach + lookahead, max_length)

    def filled_length(self, length: int, n_slots: int) -> int:
        """Number of slots, from the first, that hold the first `length` positions."""
        return min(length, n_slots)

    def slots(self, positions: Tensor, n_slots: int) -> Tensor:
        """Slot of each position's key: int64, the shape of `positions`."""
        return positions % n_slots

    def slot_positions(self, positions: Tensor, n_slots: int) -> Tensor:
        """Position whose key each slot holds once `positions` are written, below 0 for none.

        positions: int64 [..., P], consecutive -> int64 [..., S].
        """
        first = positions[..., -1:] - n_slots + 1  # the ring holds n_slots positions from here
        return first + (torch.arange(n_slots, device=positions.device) - first) % n_slots


class KernelCache:
    """What a backend has compiled for a pattern; a copy of the pattern begins without."""

    def __init__(self) -> None:
        self.masks: dict[tuple[int, str], Any] = {}
        """Block masks by length and device."""
        self.functions: dict[tuple[Any, ...], Callable[..., Tensor]] = {}
        """Compiled functions by what they serve."""

    def __reduce__(self) -> tuple[type[KernelCache], tuple[()]]:
        return KernelCache, ()


class MaskPattern(nn.Module, ABC):
    """The rule which keys a query sees, by positions; `visible` is enough for a new pattern."""

    causal: bool = True
    """Whether no query sees a key after it."""
    is_full: bool = False
    """Whether a query sees all keys, or all that are not after it where causal."""
    windows: Windows | None
    """Blocks of queries with one window of keys each, where the pattern has that form."""

    def __init__(self, layout: CacheLayout | None = None) -> None:
        super().__init__()
        self.layout = CacheLayout() if layout is None else layout
        self.windows = None
        self.kernels = KernelCache()

    @abstractmethod
    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether queries see keys, by positions, int64, that broadcast; usable in a mask_mod."""

    def visible_pairs(self, length: int) -> int:
        """Number of pairs of a query and a key that it sees in a sequence of `length` positions."""
        table = next(self.buffers(), torch.empty(0))
        return count_pairs(self.visible, length, length, table.device)

    def key_span(self, first: int, stop: int, length: int) -> tuple[int, int, int, int]:
        """Bounds (a, b, c, d) of the keys that queries first..stop-1 of a sequence see.

        No query sees a key outside a..d-1; every query sees all of b..c-1 (none where b >= c).
        """
        end = stop if self.causal else length
        return 0, end, end, end


def count_pairs(
    visible: Rule, n_queries: int, n_keys: int, device: torch.device | None = None
) -> int:
    """Number of pairs for which a rule of a query and a key is True; device: of its tables."""
    keys = torch.arange(n_keys, device=device)
    rows = torch.arange(n_queries, device=device).unsqueeze(1).split(COUNTED_TOGETHER)
    return sum(int(visible(queries, keys).sum()) for queries in rows)


class RangePattern(MaskPattern):
    """Each query sees one range of keys, whose ends never decrease from query to query."""

    @abstractmethod
    def key_range(self, query: Position) -> tuple[Position, Position]:
        """First key that a query sees, and one after the last; also outside the sequence."""

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        first, stop = self.key_range(query)
        return (first <= key) & (key < stop)

    def key_span(self, first: int, stop: int, length: int) -> tuple[int, int, int, int]:
        (start, stop_full), (start_full, end) = self.key_range(first), self.key_range(stop - 1)
        return max(0, start), max(0, start_full), min(length, stop_full), min(length, end)


class SlidingWindow(RangePattern):
    """The `window` positions up to the query; not causal: and as many from it on. None: all."""

    def __init__(self, causal: bool, window: int | None = None) -> None:
        super().__init__(CacheLayout(window))
        self.causal = causal
        self.is_full = window is None
        self.window = UNLIMITED if window is None else window

    def key_range(self, query: Position) -> tuple[Position, Position]:
        after = 0 if self.causal else self.window - 1  # keys after the query that it sees
        return query - self.window + 1, query + after + 1


class BlockWindow(RangePattern):
    """Keys of the query's own block and of `memory` positions before it, none after the query."""

    def __init__(self, block: int, memory: int) -> None:
        super().__init__(CacheLayout(block + memory))
        self.block = block
        self.memory = memory

    def key_range(self, query: Position) -> tuple[Position, Position]:
        return query // self.block * self.block - self.memory, query + 1


class Windows(nn.Module):
    """Index tensors of an image's blocks and of the windows that they read.

    N blocks of Q cells; the window of a block has K cells: the block and its halo. Blocks at the
    right and the lower border are cut, and windows end at the border: the missing cells repeat
    another cell and are masked.

    visible: as `MaskPattern.visible`. block: height and width of a block, in pixels. halo: height
    above the block and width to its left and right, in pixels. wrapped: the first column also
    stands to the right of the last one, a row higher, in windows that do not reach it otherwise.
    """

    def __init__(
        self,
        order: GenerationOrder,
        visible: Rule,
        block: tuple[int, int],
        halo: tuple[int, int],
        *,
        wrapped: bool = False,
    ) -> None:
        super().__init__()
        (height, width, _), (block_height, block_width) = order.shape, block
        halo_up, halo_side = halo
        bottom, right = -height % block_height, -width % block_width  # missing in cut blocks
        around = (0, 0, halo_side, halo_side + right, halo_up, bottom)
        # Position of each cell, -1 outside the image.
        grid = F.pad(order.positions, around, value=-1)
        inner = grid[halo_up:, halo_side : halo_side + width + right]
        query = _rectangles(inner, block, block_height, block_width)  # [N, Q]
        is_copy = torch.zeros_like(grid, dtype=torch.bool)
        if wrapped:
            beyond = halo_side + width  # the column to the right of the last one
            grid[halo_up : halo_up + height - 1, beyond] = order.positions[1:, 0]
            is_copy[:, beyond] = True
        window = halo_up + block_height, block_width + 2 * halo_side
        key = _rectangles(grid, block, *window)  # [N, K]
        cell = query.flatten().argsort()[-order.length :]  # after the cells outside the image
        left = torch.arange(len(query)) % -(-width // block_width) * block_width  # [N]
        is_twice = _rectangles(is_copy, block, *window) & (left <= halo_side).unsqueeze(1)  # [N, K]
        hidden = ((key < 0) | is_twice).unsqueeze(1)  # [N, 1, K]
        query, key = query.clamp(min=0), key.clamp(min=0)
        mask = visible(query.unsqueeze(2), key.unsqueeze(1)) & ~hidden  # [N, Q, K]
        self.n_blocks, self.n_pairs = len(query), mask.numel()
        self.register_buffer("query", query.flatten(), persistent=False)
        self.register_buffer("key", key.flatten(), persistent=False)
        self.register_buffer("cell", cell, persistent=False)
        self.register_buffer("mask", mask, persistent=False)

    query: Tensor  # int64 [N Q], position of each cell of the blocks
    key: Tensor  # int64 [N K], position of each cell of the windows
    cell: Tensor  # int64 [L], cell of the blocks that holds each position
    mask: Tensor  # bool [N, Q, K], True where the key is visible

    def block_of(self, position: Tensor) -> Tensor:
        """Number of the block that holds each position, in the shape of `position`."""
        return self.cell[position] // (len(self.query) // self.n_blocks)


def _rectangles(grid: Tensor, stride: tuple[int, int], height: int, width: int) -> Tensor:
    """Cells of the rectangles of this size, `stride` apart: grid [H, W, C] -> [N, cells]."""
    rectangles = grid.unfold(0, height, stride[0]).unfold(1, width, stride[1])
    return rearrange(rectangles, "rows columns c h w -> (rows columns) (h w c)")
