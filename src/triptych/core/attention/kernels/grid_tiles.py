"""Local attention of a picture in tiles: rows of blocks with their halos, linear in the pixels.

Every block of a picture has the same neighbourhood, so that a row of blocks is one batched product
over overlapping windows of the padded keys and values: no table of indices, no copy of the whole
memory, and in the backward pass no addition cell by cell. The queries do not overlap: since they
are cut up once instead of being padded too, forward and backward take 0.9 of the time. To leave
out, for the upper half of a block, the keys below it (with blocks of 8 x 8 and a halo of 4 17 % of
the pairs) took longer, as the products are smaller.

The backward pass computes the weights again, but for the first 64 MiB of them in bfloat16 on a
processor with AMX: one picture of 32 x 32 x 3 took 0.85 of the time so, and as long as before in
float32. Without AMX it was 0.87, but is nothing to a batch of pictures, and the time a pixel then
grew 1.22 times to 128 x 128 x 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triptych.core.attention.kernels.dropout import Dropped
from triptych.core.attention.kernels.grid import Blocks, Grid
from triptych.core.attention.kernels.tiles import as_given, like_projected, room, to_keep
from triptych.core.processor import has_matrix_units


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
    rows = q.shape[0] * q.shape[1] * blocks.columns
    dropped = Dropped.draw(dropout, rows, mask[0, 0].numel(), q)
    plan = _Plan(Grid(blocks), mask, at_once, padding, dropped, weights_to_keep(q))
    with as_given(q):
        y: Tensor = _InBlocks.apply(q, k, v, plan)
    return y


def weights_to_keep(like: Tensor) -> int:
    """Bytes of weights that a call keeps now: in half precision, where a processor has AMX."""
    return to_keep(like) if like.element_size() <= 2 and has_matrix_units() else 0


class _Plan(NamedTuple):
    """What does not change between the passes."""

    grid: Grid
    mask: Tensor
    at_once: int
    """Rows (batch x heads) that are computed together at most."""
    padding: Tensor | None
    dropped: Dropped | None
    keep: int
    """Bytes of weights to keep for the backward pass."""

    def groups(self, batch: int, heads: int) -> Iterator[tuple[int, tuple[slice, slice]]]:
        """Parts of the batch and of the heads whose tiles stay in a core's cache together, each
        with the number of blocks of a row of blocks that stand in the parts before it."""
        pictures = max(1, self.at_once // heads)
        at_once = min(heads, self.at_once)
        before = 0
        for first in range(0, batch, pictures):
            for head in range(0, heads, at_once):
                yield before, (slice(first, first + pictures), slice(head, head + at_once))
                rows = min(pictures, batch - first) * min(at_once, heads - head)
                before += rows * self.grid.blocks.columns

    def hidden(self, group: tuple[slice, slice], rows: int) -> Tensor | None:
        """The padding of a group as a grid of keys, 1 on padding: [R, Hp, Wp, C]."""
        if self.padding is None:
            return None
        padding = self.padding[group[0], None, :, None]  # [b, 1, L, 1]
        return self.grid.padded(padding.expand(-1, rows // len(padding), -1, -1).byte())

    def weights(self, queries: Tensor, keys: Tensor, hidden: Tensor | None, row: int) -> Tensor:
        """The softmax of a row of blocks, its queries scaled: [N, Q, K]."""
        mask = self.mask[self.grid.blocks.kind(row)]  # [columns, Q, K]
        logits = torch.bmm(queries, keys.mT)  # [N, Q, K]
        by_column = logits.unflatten(0, (-1, len(mask)))  # [R, columns, Q, K]
        by_column.add_(mask)
        if hidden is None:
            return logits.softmax(-1)
        padded = self.grid.keys(hidden, row).flatten(1).bool()  # [N, K]
        padded = padded.unflatten(0, (-1, len(mask))).unsqueeze(-2)  # [R, columns, 1, K]
        by_column.masked_fill_(padded, torch.finfo(logits.dtype).min)
        weights = logits.softmax(-1)
        # A query without any key has spread its weight evenly: it gets none.
        weights.unflatten(0, (-1, len(mask))).masked_fill_(padded | (mask < 0), 0.0)
        return weights


class _InBlocks(torch.autograd.Function):
    """The loop over groups of heads and rows of blocks; R = rows of a group, N = R columns."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: _Plan) -> Tensor:
        grid = plan.grid
        y = like_projected(q)
        kept: list[Tensor] = []
        scale = q.shape[-1] ** -0.5
        room_left = plan.keep
        for before, group in plan.groups(*q.shape[:2]):
            k_grid, v_grid = (grid.padded(x[group]) for x in (k, v))  # 2 x [R, Hp, Wp, C E]
            q_tiles = grid.tiles(q[group] * scale)  # [rows, R, columns, Q, E]
            y_tiles = torch.empty_like(q_tiles)
            hidden = plan.hidden(group, len(k_grid))
            for row in range(grid.blocks.rows):
                queries, y_tile = (x[row].flatten(0, 1) for x in (q_tiles, y_tiles))  # [N, Q, E]
                keys, values = (grid.keys(x, row) for x in (k_grid, v_grid))  # 2 x [N, K, E]
                weights = plan.weights(queries, keys, hidden, row)  # [N, Q, K]
                room_left -= weights.nbytes
                if room_left >= 0:
                    kept.append(weights)
                if plan.dropped is not None:
                    factors = plan.dropped.factors(weights, row, before)
                    weights = weights * factors if room_left >= 0 else weights.mul_(factors)
                torch.bmm(weights, values, out=y_tile)  # [N, Q, E]
            grid.put_tiles(y[group], y_tiles)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.plan = plan
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, *kept = ctx.saved_tensors
        kept_weights = iter(kept)
        plan: _Plan = ctx.plan
        grid = plan.grid
        dq, dk, dv = (like_projected(x) for x in (q, k, v))
        wide = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
        scale = q.shape[-1] ** -0.5
        with as_given(q):  # somebody may call for the backward pass within autocast
            for before, group in plan.groups(*q.shape[:2]):
                k_grid, v_grid = (grid.padded(x[group]) for x in (k, v))  # 2 x [R, Hp, Wp, C E]
                q_tiles, dy_tiles = grid.tiles(q[group] * scale), grid.tiles(gradients[0][group])
                dq_tiles = torch.empty_like(q_tiles)  # [rows, R, columns, Q, E]
                dk_grid, dv_grid = (torch.zeros_like(k_grid, dtype=wide) for _ in range(2))
                hidden = plan.hidden(group, len(k_grid))
                for row in range(grid.blocks.rows):
                    queries, dy, dq_tile = (
                        x[row].flatten(0, 1) for x in (q_tiles, dy_tiles, dq_tiles)
                    )  # 3 x [N, Q, E]
                    keys, values = (grid.keys(x, row) for x in (k_grid, v_grid))  # 2 x [N, K, E]
                    weights = next(kept_weights, None)  # [N, Q, K]
                    if weights is None:
                        weights = plan.weights(queries, keys, hidden, row)
                    d_weights = torch.bmm(dy, values.mT)  # [N, Q, K]
                    used = weights
                    if plan.dropped is not None:
                        factors = plan.dropped.factors(weights, row, before)
                        used = weights * factors
                        d_weights.mul_(factors)
                    grid.add_keys(dv_grid, torch.bmm(used.mT, dy), row)
                    d_logits = torch.ops.aten._softmax_backward_data(
                        d_weights, weights, -1, weights.dtype
                    )
                    grid.add_keys(dk_grid, torch.bmm(d_logits.mT, queries), row)
                    torch.bmm(d_logits, keys, out=dq_tile)  # [N, Q, E]
                grid.put_tiles(dq[group], dq_tiles.mul_(scale))
                for total, part in ((dk, dk_grid), (dv, dv_grid)):
                    grid.put(total[group], part)
        return dq, dk, dv, None
