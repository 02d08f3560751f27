"""A picture cut into blocks with halos, and the way between its sequence and their windows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Blocks(NamedTuple):
    """A picture cut into blocks, each with a halo above and to both sides; lengths in pixels."""

    height: int
    width: int
    channels: int
    block_height: int
    block_width: int
    up: int
    side: int

    @property
    def rows(self) -> int:
        """Rows of blocks, the last one perhaps cut by the edge."""
        return -(-self.height // self.block_height)

    @property
    def columns(self) -> int:
        """Blocks in such a row."""
        return -(-self.width // self.block_width)

    @property
    def n_queries(self) -> int:
        """Cells of a block."""
        return self.block_height * self.block_width * self.channels

    @property
    def window_width(self) -> int:
        """Width of a block and its halo."""
        return self.block_width + 2 * self.side

    @property
    def window_row(self) -> int:
        """Cells of a row of pixels of a block and its halo."""
        return self.window_width * self.channels

    @property
    def n_keys(self) -> int:
        """Cells of a block and its halo."""
        return (self.up + self.block_height) * self.window_row

    @property
    def n_pairs(self) -> int:
        """Queries times keys over all blocks."""
        return self.rows * self.columns * self.n_queries * self.n_keys

    def kind(self, row: int) -> int:
        """Rows of blocks differ in how much of their halo lies above the picture, and where the
        picture's edge cuts the last one: a number from 0 for each row of blocks.
        """
        whole = -(-self.up // self.block_height)
        cut = self.height % self.block_height > 0 and row == self.rows - 1
        return min(row, whole + 1) if cut else min(row, whole)


class Grid(NamedTuple):
    """The way between sequences and a picture's blocks, or their windows: blocks and halos."""

    blocks: Blocks

    def strips(self, x: Tensor) -> Tensor:
        """The columns of blocks with their halos, from top to bottom, zeros beyond the picture:
        [B, H, L, ...] in raster order -> [B H, columns, S, ...].

        So the window of a block is one run of its strip, and no window has to be gathered; a cell
        stands in as many strips as windows of a row of blocks reach it: kw / bw of them.
        """
        blocks = self.blocks
        batch, heads, _, *features = x.shape
        cells = x.unflatten(2, (blocks.height, blocks.width, blocks.channels))
        tall = blocks.up + blocks.rows * blocks.block_height
        wide = blocks.window_width
        strips = x.new_empty(batch, heads, blocks.columns, tall, wide, blocks.channels, *features)
        below = blocks.up + blocks.height
        strips[:, :, :, : blocks.up] = 0
        strips[:, :, :, below:] = 0
        for column, (left, first, stop) in enumerate(self._columns()):
            strip = strips[:, :, column, blocks.up : below]  # [B, H, height, kw, C, ...]
            strip[:, :, :, : first - left] = 0
            strip[:, :, :, first - left : stop - left] = cells[:, :, :, first:stop]
            strip[:, :, :, stop - left :] = 0
        return strips.view(batch * heads, blocks.columns, -1, *features)

    def put(self, x: Tensor, strips: Tensor) -> None:
        """Add up what the strips [B H, columns, S, ...] hold of each cell: into x [B, H, L, ...].

        The transpose of `strips`; uses them up.
        """
        blocks = self.blocks
        cells = x.unflatten(2, (blocks.height, blocks.width, blocks.channels))
        size = (*x.shape[:2], blocks.columns, -1, blocks.window_width, *cells.shape[4:])
        whole = strips.view(size)  # [B, H, columns, Hp, kw, C, ...]
        whole = whole[:, :, :, blocks.up : blocks.up + blocks.height]
        columns = self._columns()
        for column, (left, first, stop) in enumerate(columns):
            strip = whole[:, :, column, :, first - left :]
            if column > 0:
                # What it shares with the strip before it, which holds the sum of all before it.
                left_before, _, stop_before = columns[column - 1]
                begin, shared = first - left_before, stop_before - first
                strip[:, :, :, :shared] += whole[:, :, column - 1, :, begin : begin + shared]
            last = column + 1 == blocks.columns
            own = (stop if last else columns[column + 1][1]) - first
            cells[:, :, :, first : first + own] = strip[:, :, :, :own]

    def _columns(self) -> list[tuple[int, int, int]]:
        """Of each strip, in columns of pixels: its left edge, which may lie beside the picture, and
        first and last + 1 of those that it holds of the picture.
        """
        blocks = self.blocks
        lefts = [column * blocks.block_width - blocks.side for column in range(blocks.columns)]
        return [
            (left, max(0, left), min(blocks.width, left + blocks.window_width)) for left in lefts
        ]

    def tiles(self, x: Tensor) -> Tensor:
        """The blocks of a picture: [B, H, L, E] in raster order -> [rows, B H, columns, Q, E].

        Cells beyond the edge are 0.
        """
        blocks = self.blocks
        tiles = self.cut(x).contiguous()  # [rows, B, H, columns, bh, bw, C, E]
        return tiles.view(blocks.rows, -1, blocks.columns, blocks.n_queries, x.shape[-1])

    def put_tiles(self, x: Tensor, tiles: Tensor) -> None:
        """The inverse of `tiles`: [rows, B H, columns, Q, E] into x [B, H, L, E]."""
        view, whole = self.to_fill(x)
        view.copy_(tiles.view(view.shape))
        self.filled(x, whole)

    def cut(self, x: Tensor) -> Tensor:
        """[B, H, L, ...] in raster order -> [rows, B, H, columns, bh, bw, C, ...].

        A view; where blocks do not divide the picture a copy, 0 beyond the edge.
        """
        blocks = self.blocks
        below = blocks.rows * blocks.block_height - blocks.height
        beside = blocks.columns * blocks.block_width - blocks.width
        cells = x.unflatten(2, (blocks.height, blocks.width, -1))  # [B, H, h, w, C, ...]
        if below or beside:
            as_they_are = (0, 0) * (cells.ndim - 4)
            # [B, H, rows bh, columns bw, C, ...]
            cells = F.pad(cells, (*as_they_are, 0, beside, 0, below))
        return self._as_tiles(cells)

    def to_fill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Where the blocks of x [B, H, L, ...] go: [rows, B, H, columns, bh, bw, C, ...], a view of
        the second; when it is full, `filled` brings that to x.
        """
        blocks = self.blocks
        size = blocks.rows * blocks.block_height, blocks.columns * blocks.block_width
        whole = x.unflatten(2, (blocks.height, blocks.width, -1))  # [B, H, h, w, C, ...]
        if size != whole.shape[2:4]:
            # [B, H, rows bh, columns bw, C, ...]
            whole = x.new_empty(*x.shape[:2], *size, blocks.channels, *x.shape[3:])
        return self._as_tiles(whole), whole

    def filled(self, x: Tensor, whole: Tensor) -> None:
        """Copy what `to_fill` gave into x [B, H, L, ...], where it does not lie there already."""
        blocks = self.blocks
        cells = x.unflatten(2, (blocks.height, blocks.width, -1))  # [B, H, h, w, C, ...]
        if whole.shape != cells.shape:
            cells.copy_(whole[:, :, : blocks.height, : blocks.width])

    def _as_tiles(self, cells: Tensor) -> Tensor:
        """View [B, H, rows bh, columns bw, C, ...] -> [rows, B, H, columns, bh, bw, C, ...]."""
        blocks = self.blocks
        cut: Tensor = cells.unflatten(3, (blocks.columns, -1))  # [B, H, rows bh, columns, bw, ...]
        cut = cut.unflatten(2, (blocks.rows, -1))  # [B, H, rows, bh, columns, bw, C, ...]
        return cut.transpose(3, 4).movedim(2, 0)  # [rows, B, H, columns, bh, bw, C, ...]

    def keys(self, strips: Tensor, row: int) -> Tensor:
        """View of a row's windows: [B H, columns, S, ...] -> [B H columns, K, ...]."""
        blocks = self.blocks
        first = row * blocks.block_height * blocks.window_row
        return strips[:, :, first : first + blocks.n_keys].flatten(0, 1)

    def add_keys(self, strips: Tensor, windows: Tensor, row: int) -> None:
        """Add [B H columns, K, ...] to where `keys` reads, row by row from the first.

        The strips need not be zero before: what no row above reaches is filled.
        """
        into = self.keys(strips, row)
        reached = 0 if row == 0 else self.blocks.up * self.blocks.window_row
        into[:, :reached] += windows[:, :reached]
        into[:, reached:] = windows[:, reached:]


def hidden_keys(blocks: Blocks, steps: Tensor) -> Tensor:
    """Which keys each query of a row of blocks may not see: bool [kinds, columns, Q, K].

    steps int64 [H, W, C]: when each cell is generated. A key is hidden where it lies beyond the
    picture's edge or comes after the query; the neighbourhood itself is the window.
    """
    grid = Grid(blocks)
    # Steps count from 1 here, so that the cells beyond the edge, which are 0, differ from all.
    counted = steps.flatten().view(1, 1, -1, 1) + 1  # [1, 1, L, 1]
    # [1, columns, S, 1], [rows, 1, columns, Q, 1]
    strips, tiles = grid.strips(counted), grid.tiles(counted)
    rows = {blocks.kind(row): row for row in range(blocks.rows)}.values()  # one of each kind
    query = torch.stack([tiles[row].flatten(0, 1).squeeze(-1) for row in rows])  # [kinds, cols, Q]
    key = torch.stack([grid.keys(strips, row).squeeze(-1) for row in rows])  # [kinds, columns, K]
    return (key.unsqueeze(-2) > query.unsqueeze(-1)) | (key == 0).unsqueeze(-2)
