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
    def n_keys(self) -> int:
        """Cells of a block and its halo."""
        height, width = self.up + self.block_height, self.block_width + 2 * self.side
        return height * width * self.channels

    @property
    def apart(self) -> int:
        """Columns of blocks from one window to the next that does not overlap it."""
        return -(-(self.block_width + 2 * self.side) // self.block_width)

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
    """The way between sequences and a picture's blocks, or the windows of it padded by its halo."""

    blocks: Blocks

    def padded(self, x: Tensor) -> Tensor:
        """[B, H, L, E] in raster order -> [B H, Hp, Wp, C E] with zeros around the picture."""
        blocks = self.blocks
        batch, heads, _, width = x.shape
        size = (
            blocks.up + blocks.rows * blocks.block_height,
            blocks.columns * blocks.block_width + 2 * blocks.side,
        )
        grid = x.new_zeros(batch, heads, *size, blocks.channels, width)
        cells = x.unflatten(2, (blocks.height, blocks.width, blocks.channels))
        grid[self._inside()] = cells
        return grid.view(batch * heads, *size, -1)  # [B H, Hp, Wp, C E]

    def put(self, x: Tensor, grid: Tensor) -> None:
        """The inverse of `padded`: [B H, Hp, Wp, C E] into x [B, H, L, E]."""
        blocks = self.blocks
        cells = x.unflatten(2, (blocks.height, blocks.width, blocks.channels))
        inner = grid.view(*x.shape[:2], *grid.shape[1:3], blocks.channels, -1)
        cells.copy_(inner[self._inside()])

    def _inside(self) -> tuple[slice, ...]:
        """Where the picture lies in its padded grid [B, H, Hp, Wp, C, E]."""
        blocks = self.blocks
        rows = slice(blocks.up, blocks.up + blocks.height)
        columns = slice(blocks.side, blocks.side + blocks.width)
        return slice(None), slice(None), rows, columns

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
        """[B, H, L, E] in raster order -> [rows, B, H, columns, bh, bw, C, E].

        A view; where blocks do not divide the picture a copy, 0 beyond the edge.
        """
        blocks = self.blocks
        below = blocks.rows * blocks.block_height - blocks.height
        beside = blocks.columns * blocks.block_width - blocks.width
        cells = x.unflatten(2, (blocks.height, blocks.width, -1))  # [B, H, h, w, C, E]
        if below or beside:
            # [B, H, rows bh, columns bw, C, E]
            cells = F.pad(cells, (0, 0, 0, 0, 0, beside, 0, below))
        return self._as_tiles(cells)

    def to_fill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Where the blocks of x [B, H, L, E] go: [rows, B, H, columns, bh, bw, C, E], a view of the
        second; when it is full, `filled` brings that to x.
        """
        blocks = self.blocks
        size = blocks.rows * blocks.block_height, blocks.columns * blocks.block_width
        whole = x.unflatten(2, (blocks.height, blocks.width, -1))  # [B, H, h, w, C, E]
        if size != whole.shape[2:4]:
            # [B, H, rows bh, columns bw, C, E]
            whole = x.new_empty(*x.shape[:2], *size, blocks.channels, x.shape[-1])
        return self._as_tiles(whole), whole

    def filled(self, x: Tensor, whole: Tensor) -> None:
        """Copy what `to_fill` gave into x [B, H, L, E], where it does not lie there already."""
        blocks = self.blocks
        cells = x.unflatten(2, (blocks.height, blocks.width, -1))  # [B, H, h, w, C, E]
        if whole.shape != cells.shape:
            cells.copy_(whole[:, :, : blocks.height, : blocks.width])

    def _as_tiles(self, cells: Tensor) -> Tensor:
        """View [B, H, rows bh, columns bw, C, E] -> [rows, B, H, columns, bh, bw, C, E]."""
        blocks = self.blocks
        cut: Tensor = cells.unflatten(3, (blocks.columns, -1))  # [B, H, rows bh, columns, bw, C, E]
        cut = cut.unflatten(2, (blocks.rows, -1))  # [B, H, rows, bh, columns, bw, C, E]
        return cut.permute(2, 0, 1, 4, 3, 5, 6, 7)

    def keys(self, grid: Tensor, row: int) -> Tensor:
        """The windows of a row of blocks: [R, Hp, Wp, C E] -> [R columns, K, E]."""
        blocks = self.blocks
        windows = self._keys_of(grid, row).transpose(1, 2)  # [R, columns, kh, kw C E]
        return windows.reshape(len(grid) * blocks.columns, blocks.n_keys, -1)

    def add_keys(self, grid: Tensor, tiles: Tensor, row: int) -> None:
        """Add [R columns, K, E] where `keys` reads; windows overlap."""
        blocks = self.blocks
        windows = self._keys_of(grid, row)  # [R, kh, columns, kw C E]
        added = tiles.view(len(grid), blocks.columns, windows.shape[1], -1).transpose(1, 2)
        for first in range(min(blocks.apart, blocks.columns)):
            windows[:, :, first :: blocks.apart].add_(added[:, :, first :: blocks.apart])

    def _keys_of(self, grid: Tensor, row: int) -> Tensor:
        """View of the overlapping windows of a row of blocks: [R, kh, columns, kw C E]."""
        blocks = self.blocks
        width = (blocks.block_width + 2 * blocks.side) * grid.shape[-1]
        top = row * blocks.block_height
        rows = grid[:, top : top + blocks.up + blocks.block_height]  # [R, kh, Wp, C E]
        return rows.as_strided(
            (*rows.shape[:2], blocks.columns, width),
            (*rows.stride()[:2], blocks.block_width * grid.shape[-1], 1),
            rows.storage_offset(),
        )


def hidden_keys(blocks: Blocks, steps: Tensor) -> Tensor:
    """Which keys each query of a row of blocks may not see: bool [kinds, columns, Q, K].

    steps int64 [H, W, C]: when each cell is generated. A key is hidden where it lies beyond the
    picture's edge or comes after the query; the neighbourhood itself is the window.
    """
    grid = Grid(blocks)
    # Steps count from 1 here, so that the cells beyond the edge, which are 0, differ from all.
    counted = steps.flatten().view(1, 1, -1, 1) + 1  # [1, 1, L, 1]
    padded, tiles = grid.padded(counted), grid.tiles(counted)  # [1, Hp, Wp, C], [rows, 1, ., Q, 1]
    rows = {blocks.kind(row): row for row in range(blocks.rows)}.values()  # one of each kind
    query = torch.stack([tiles[row].flatten(0, 1).squeeze(-1) for row in rows])  # [kinds, cols, Q]
    key = torch.stack([grid.keys(padded, row).flatten(1) for row in rows])  # [kinds, columns, K]
    return (key.unsqueeze(-2) > query.unsqueeze(-1)) | (key == 0).unsqueeze(-2)
