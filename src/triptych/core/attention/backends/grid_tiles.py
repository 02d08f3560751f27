"""Local attention of a picture in tiles: rows of blocks with their halos, linear in the pixels.

Every block of a picture has the same neighbourhood, so that a row of blocks is one batched product
over windows of the keys and values, each of them one run of its column's strip: no table of
indices, no window gathered, and in the backward pass no addition cell by cell. The queries do not
overlap and are cut up once. To leave out, for the upper half of a block, the keys below it (with
blocks of 8 x 8 and a halo of 4 17 % of the pairs) took longer, as the products are smaller.

The backward pass computes the weights again, but for 64 MiB of them in bfloat16 on a
processor with AMX: one picture of 32 x 32 x 3 took 0.85 of the time so, and as long as before in
float32. Without AMX it was 0.87, but is nothing to a batch of pictures, and the time a pixel then
grew 1.22 times to 128 x 128 x 3.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triptych.core.attention.backends.dropout import Dropped
from triptych.core.attention.backends.grid import Blocks, Grid
from triptych.core.attention.backends.lanes import n_lanes, parts_of, side_by_side
from triptych.core.attention.backends.passes import (
    as_given,
    by_part,
    like_projected,
    room,
    to_keep,
    wide_dtype,
)
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
    batch, heads = q.shape[:2]
    dropped = Dropped.draw(dropout, batch * heads * blocks.columns, mask[0, 0].numel(), q)
    lanes = n_lanes(q, heads, batch * heads * blocks.n_pairs)
    parts = parts_of(batch, heads, room(q) // mask[0].numel(), lanes)
    plan = _Plan(Grid(blocks), mask, parts, lanes, padding, dropped, weights_to_keep(q))
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
    parts: list[tuple[slice, slice]]
    """Of the batch and of the heads: what is computed together."""
    lanes: int
    """Parts that are computed side by side."""
    padding: Tensor | None
    dropped: Dropped | None
    keep: int
    """Bytes of weights to keep for the backward pass."""

    def before(self, number: int, heads: int) -> int:
        """Blocks of a row of blocks that stand in the parts before this one."""
        pictures, of_heads = self.parts[number]
        rows: int = pictures.start * heads + of_heads.start * (pictures.stop - pictures.start)
        return rows * self.grid.blocks.columns

    def hidden(self, part: tuple[slice, slice], rows: int) -> Tensor | None:
        """The padding of a part as strips of keys, 1 on padding: [R, columns, S, 1]."""
        if self.padding is None:
            return None
        padding = self.padding[part[0], None, :, None]  # [b, 1, L, 1]
        return self.grid.strips(padding.expand(-1, rows // len(padding), -1, -1).byte())

    def weights(self, queries: Tensor, keys: Tensor, hidden: Tensor | None, row: int) -> Tensor:
        """The softmax of a row of blocks, its queries scaled: [N, Q, K]."""
        mask = self.mask[self.grid.blocks.kind(row)]  # [columns, Q, K]
        logits = torch.bmm(queries, keys.mT)  # [N, Q, K]
        by_column = logits.unflatten(0, (-1, len(mask)))  # [R, columns, Q, K]
        by_column.add_(mask)
        if hidden is None:
            return logits.softmax(-1)
        padded = self.grid.keys(hidden, row).squeeze(-1).bool()  # [N, K]
        padded = padded.unflatten(0, (-1, len(mask))).unsqueeze(-2)  # [R, columns, 1, K]
        by_column.masked_fill_(padded, torch.finfo(logits.dtype).min)
        weights = logits.softmax(-1)
        # A query without any key has spread its weight evenly: it gets none.
        weights.unflatten(0, (-1, len(mask))).masked_fill_(padded | (mask < 0), 0.0)
        return weights


class _InBlocks(torch.autograd.Function):
    """The loop over parts and rows of blocks; R = rows of a part, N = R columns."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: _Plan) -> Tensor:
        grid = plan.grid
        y = like_projected(q)
        scale = q.shape[-1] ** -0.5
        share = plan.keep // max(1, len(plan.parts))

        def part_forward(number: int) -> list[Tensor]:
            part = plan.parts[number]
            k_strips, v_strips = (grid.strips(x[part]) for x in (k, v))  # 2 x [R, columns, S, E]
            q_tiles = grid.tiles(q[part] * scale)  # [rows, R, columns, Q, E]
            y_tiles = torch.empty_like(q_tiles)
            hidden = plan.hidden(part, len(k_strips))
            before = plan.before(number, q.shape[1])
            kept: list[Tensor] = []
            room_left = share
            for row in range(grid.blocks.rows):
                queries, y_tile = (x[row].flatten(0, 1) for x in (q_tiles, y_tiles))  # [N, Q, E]
                keys, values = (grid.keys(x, row) for x in (k_strips, v_strips))  # 2 x [N, K, E]
                weights = plan.weights(queries, keys, hidden, row)  # [N, Q, K]
                room_left -= weights.nbytes
                if room_left >= 0:
                    kept.append(weights)
                if plan.dropped is not None:
                    factors = plan.dropped.factors(weights, row, before)
                    weights = weights * factors if room_left >= 0 else weights.mul_(factors)
                torch.bmm(weights, values, out=y_tile)  # [N, Q, E]
            grid.put_tiles(y[part], y_tiles)
            return kept

        kept = side_by_side(part_forward, range(len(plan.parts)), plan.lanes)
        ctx.save_for_backward(q, k, v, *chain.from_iterable(kept))
        ctx.n_kept = [len(weights) for weights in kept]
        ctx.plan = plan
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, *saved = ctx.saved_tensors
        kept = by_part(saved, ctx.n_kept)
        plan: _Plan = ctx.plan
        grid = plan.grid
        dq, dk, dv = (like_projected(x) for x in (q, k, v))
        scale = q.shape[-1] ** -0.5

        def part_backward(number: int) -> None:
            part = plan.parts[number]
            k_strips, v_strips = (grid.strips(x[part]) for x in (k, v))  # 2 x [R, columns, S, E]
            q_tiles, dy_tiles = grid.tiles(q[part] * scale), grid.tiles(gradients[0][part])
            dq_tiles = torch.empty_like(q_tiles)  # [rows, R, columns, Q, E]
            dk_strips, dv_strips = (
                torch.empty_like(k_strips, dtype=wide_dtype(q)) for _ in range(2)
            )
            hidden = plan.hidden(part, len(k_strips))
            before = plan.before(number, q.shape[1])
            kept_weights = iter(kept[number])
            for row in range(grid.blocks.rows):
                queries, dy, dq_tile = (
                    x[row].flatten(0, 1) for x in (q_tiles, dy_tiles, dq_tiles)
                )  # 3 x [N, Q, E]
                keys, values = (grid.keys(x, row) for x in (k_strips, v_strips))  # 2 x [N, K, E]
                weights = next(kept_weights, None)  # [N, Q, K]
                if weights is None:
                    weights = plan.weights(queries, keys, hidden, row)
                d_weights = torch.bmm(dy, values.mT)  # [N, Q, K]
                used = weights
                if plan.dropped is not None:
                    factors = plan.dropped.factors(weights, row, before)
                    used = weights * factors
                    d_weights.mul_(factors)
                grid.add_keys(dv_strips, torch.bmm(used.mT, dy), row)
                d_logits = torch._softmax_backward_data(
                    d_weights, weights, -1, weights.dtype, grad_input=d_weights
                )
                grid.add_keys(dk_strips, torch.bmm(d_logits.mT, queries), row)
                torch.bmm(d_logits, keys, out=dq_tile)  # [N, Q, E]
            grid.put_tiles(dq[part], dq_tiles.mul_(scale))
            for total, of_part in ((dk, dk_strips), (dv, dv_strips)):
                grid.put(total[part], of_part)

        with as_given(q):  # somebody may call for the backward pass within autocast
            side_by_side(part_backward, range(len(plan.parts)), plan.lanes)
        return dq, dk, dv, None
