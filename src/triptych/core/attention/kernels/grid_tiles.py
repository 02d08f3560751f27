"""Local attention of a picture in tiles: rows of blocks with their halos, linear in the pixels.

Every block of a picture has the same neighbourhood, so that a row of blocks is one batched product
over overlapping windows of a padded picture: no table of indices, no copy of the whole memory, and
in the backward pass no addition cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triptych.core.attention.kernels.dropout import Dropped
from triptych.core.attention.kernels.tiles import like_projected, room


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


def hidden_keys(blocks: Blocks, steps: Tensor) -> Tensor:
    """Which keys each query of a row of blocks may not see: bool [kinds, columns, Q, K].

    steps int64 [H, W, C]: when each cell is generated. A key is hidden where it lies beyond the
    picture's edge or comes after the query; the neighbourhood itself is the window.
    """
    grid = _Grid(blocks)
    # Steps count from 1 here, so that the cells beyond the edge, which are 0, differ from all.
    padded = grid.padded(steps.flatten().view(1, 1, -1, 1) + 1)  # [1, Hp, Wp, C]
    rows = {blocks.kind(row): row for row in range(blocks.rows)}.values()  # one of each kind
    query = torch.stack([grid.queries(padded, row).flatten(1) for row in rows])  # [kinds, cols, Q]
    key = torch.stack([grid.keys(padded, row).flatten(1) for row in rows])  # [kinds, columns, K]
    return (key.unsqueeze(-2) > query.unsqueeze(-1)) | (key == 0).unsqueeze(-2)


def attend_in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Blocks,
    mask: Tensor,
    *,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k^T / sqrt(E)) v of each block over its window.

    q, k, v [B, H, L, E] in raster order, L = height x width x channels; mask [kinds, columns, Q,
    K], added to the logits: 0, or very low where `hidden_keys` says so; padding [B, L] True on
    padding; dropout: share of the weights dropped -> [B, H, L, E].
    """
    at_once = max(1, room(q) // mask[0].numel())
    most = min(at_once, q.shape[0] * q.shape[1]) * blocks.columns
    dropped = Dropped.draw(dropout, most, mask[0, 0].numel(), q)
    y: Tensor = _InBlocks.apply(q, k, v, _Plan(_Grid(blocks), mask, at_once, padding, dropped))
    return y


class _Plan(NamedTuple):
    """What does not change between the passes."""

    grid: _Grid
    mask: Tensor
    at_once: int
    """Rows (batch x heads) that are computed together at most."""
    padding: Tensor | None
    dropped: Dropped | None

    def groups(self, batch: int, heads: int) -> Iterator[tuple[slice, slice]]:
        """Parts of the batch and of the heads whose tiles stay in a core's cache together."""
        sentences = max(1, self.at_once // heads)
        at_once = min(heads, self.at_once)
        for first in range(0, batch, sentences):
            for head in range(0, heads, at_once):
                yield slice(first, first + sentences), slice(head, head + at_once)

    def hidden(self, group: tuple[slice, slice], rows: int) -> Tensor | None:
        """The padding of a group as a grid of keys, 1 on padding: [R, Hp, Wp, C]."""
        if self.padding is None:
            return None
        padding = self.padding[group[0], None, :, None]  # [b, 1, L, 1]
        return self.grid.padded(padding.expand(-1, rows // len(padding), -1, -1).byte())

    def weights(
        self, queries: Tensor, keys: Tensor, hidden: Tensor | None, row: int
    ) -> tuple[Tensor, Tensor | None]:
        """The softmax of a row of blocks [N, Q, K], and the factors of its dropout."""
        mask = self.mask[self.grid.blocks.kind(row)]  # [columns, Q, K]
        logits = torch.bmm(queries * queries.shape[-1] ** -0.5, keys.mT)  # [N, Q, K]
        by_column = logits.unflatten(0, (-1, len(mask)))  # [R, columns, Q, K]
        by_column.add_(mask)
        factors = None if self.dropped is None else self.dropped.factors(logits, row)
        if hidden is None:
            return logits.softmax(-1), factors
        padded = self.grid.keys(hidden, row).flatten(1).bool()  # [N, K]
        padded = padded.unflatten(0, (-1, len(mask))).unsqueeze(-2)  # [R, columns, 1, K]
        by_column.masked_fill_(padded, torch.finfo(logits.dtype).min)
        weights = logits.softmax(-1)
        # A query without any key has spread its weight evenly: it gets none.
        weights.unflatten(0, (-1, len(mask))).masked_fill_(padded | (mask < 0), 0.0)
        return weights, factors


class _InBlocks(torch.autograd.Function):
    """The loop over groups of heads and rows of blocks; R = rows of a group, N = R columns."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: _Plan) -> Tensor:
        grid = plan.grid
        y = like_projected(q)
        for group in plan.groups(*q.shape[:2]):
            q_grid, k_grid, v_grid = (grid.padded(x[group]) for x in (q, k, v))
            y_grid = torch.empty_like(q_grid)  # [R, Hp, Wp, C E]
            hidden = plan.hidden(group, len(q_grid))
            for row in range(grid.blocks.rows):
                queries, keys = grid.queries(q_grid, row), grid.keys(k_grid, row)
                weights, factors = plan.weights(queries, keys, hidden, row)  # [N, Q, K]
                if factors is not None:
                    weights.mul_(factors)
                grid.put_queries(y_grid, torch.bmm(weights, grid.keys(v_grid, row)), row)
            grid.put(y[group], y_grid)
        ctx.save_for_backward(q, k, v)
        ctx.plan = plan
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v = ctx.saved_tensors
        plan: _Plan = ctx.plan
        grid = plan.grid
        dq, dk, dv = (like_projected(x) for x in (q, k, v))
        wide = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
        scale = q.shape[-1] ** -0.5
        for group in plan.groups(*q.shape[:2]):
            q_grid, k_grid, v_grid, dy_grid = (
                grid.padded(x[group]) for x in (q, k, v, gradients[0])
            )
            dq_grid = torch.empty_like(q_grid)  # [R, Hp, Wp, C E]
            dk_grid, dv_grid = (torch.zeros_like(q_grid, dtype=wide) for _ in range(2))
            hidden = plan.hidden(group, len(q_grid))
            for row in range(grid.blocks.rows):
                queries, dy = (grid.queries(x, row) for x in (q_grid, dy_grid))  # 2 x [N, Q, E]
                keys, values = (grid.keys(x, row) for x in (k_grid, v_grid))  # 2 x [N, K, E]
                weights, factors = plan.weights(queries, keys, hidden, row)  # [N, Q, K]
                d_weights = torch.bmm(dy, values.mT)  # [N, Q, K]
                used = weights
                if factors is not None:
                    used = weights * factors
                    d_weights.mul_(factors)
                grid.add_keys(dv_grid, torch.bmm(used.mT, dy), row)
                d_logits = torch.ops.aten._softmax_backward_data(
                    d_weights, weights, -1, weights.dtype
                )
                grid.add_keys(dk_grid, torch.bmm(d_logits.mT, queries * scale), row)
                grid.put_queries(dq_grid, torch.bmm(d_logits, keys).mul_(scale), row)
            for total, part in ((dq, dq_grid), (dk, dk_grid), (dv, dv_grid)):
                grid.put(total[group], part)
        return dq, dk, dv, None


class _Grid(NamedTuple):
    """The way between sequences and windows of a picture padded by its halo."""

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

    def queries(self, grid: Tensor, row: int) -> Tensor:
        """The blocks of a row: [R, Hp, Wp, C E] -> [R columns, Q, E]."""
        blocks = self.blocks
        tiles = self._queries_of(grid, row).transpose(1, 2)  # [R, columns, bh, bw, C E]
        return tiles.reshape(len(grid) * blocks.columns, blocks.n_queries, -1)

    def put_queries(self, grid: Tensor, tiles: Tensor, row: int) -> None:
        """Write [R columns, Q, E] where `queries` reads."""
        view = self._queries_of(grid, row)  # [R, bh, columns, bw, C E]
        rows, height, columns, width, _ = view.shape
        view.copy_(tiles.view(rows, columns, height, width, -1).transpose(1, 2))

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

    def _queries_of(self, grid: Tensor, row: int) -> Tensor:
        """View of a row of blocks: [R, bh, columns, bw, C E]."""
        blocks = self.blocks
        top = blocks.up + row * blocks.block_height
        stop = blocks.side + blocks.columns * blocks.block_width
        inner = grid[:, top : top + blocks.block_height, blocks.side : stop]
        return inner.view(*inner.shape[:2], blocks.columns, blocks.block_width, inner.shape[-1])

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
