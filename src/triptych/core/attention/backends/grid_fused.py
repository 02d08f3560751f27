"""Local attention of a picture by PyTorch's own fused kernel, a row of blocks at a time.

The same rows of blocks as in `grid_tiles`, without any tensor of the weights: the kernel works
through them in its own tiles and computes them again in its backward pass. On a processor with AMX
that kernel is as fast as matrix products alone, so that only the strips' copies are added. Heads
lie side by side in them, as the projection leaves them. Gradients add up in the precision of the
inputs.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triptych.core.attention.backends.grid import Blocks, Grid
from triptych.core.attention.backends.lanes import n_lanes, parts_of, side_by_side
from triptych.core.attention.backends.passes import like_projected

ROOM = 5 * 2**19
"""Bytes of keys that are computed together at most, so that they stay in a core's cache.

Before heads were computed side by side, 8 heads of 64, forward and backward with 1, 2, 4 and 8 of
them together: 32 x 32 x 3 120, 110, 111, 128 ms; 64 x 64 113, 89, 82, 86; 64 x 64 x 3 442, 431,
446, 485. On two cores this takes 4, 4 and 2.
"""


def attend_in_fused_blocks(q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(E)) v of each block over its window, on a CPU.

    q, k, v [B, H, L, E] in raster order; mask [kinds, columns, Q, K] as in `attend_in_blocks`
    -> [B, H, L, E].
    """
    batch, heads, _, width = q.shape
    size = blocks.columns * blocks.n_keys * width * q.element_size()  # of a head's keys in a row
    lanes = n_lanes(q, heads, batch * heads * blocks.n_pairs)
    parts = parts_of(batch, heads, ROOM // size, lanes)
    pictures = parts[0][0].stop if parts else 1
    # [kinds, G columns, 1, Q, K]
    masks = mask if pictures == 1 else mask.repeat(1, pictures, 1, 1)
    y: Tensor = _Fused.apply(q, k, v, _Plan(Grid(blocks), masks.unsqueeze(2), parts, lanes))
    return y


class _Plan(NamedTuple):
    """What does not change between the passes; G = pictures of a part, R its heads."""

    grid: Grid
    masks: Tensor
    """[kinds, G columns, 1, Q, K]."""
    parts: list[tuple[slice, slice]]
    """Of the batch and of the heads: what is computed together."""
    lanes: int
    """Parts that are computed side by side."""

    def mask(self, row: int, pictures: int) -> Tensor:
        """What is added to the logits in a row of blocks: [N, 1, Q, K], N = pictures x columns."""
        blocks = self.grid.blocks
        return self.masks[blocks.kind(row), : pictures * blocks.columns]


class _Fused(torch.autograd.Function):
    """The loop over parts and rows of blocks. With lists: no compiler follows generators here."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: _Plan) -> Tensor:
        grid = plan.grid
        y = like_projected(q)

        def part_forward(part: tuple[slice, slice]) -> list[Tensor]:
            queries = grid.cut(_cells(q[part]))  # [rows, G, 1, columns, bh, bw, C, R, E]
            y_rows, y_whole = grid.to_fill(_cells(y[part]))
            # 2 x [G, columns, S, R, E]
            k_strips, v_strips = [grid.strips(_cells(x[part])) for x in (k, v)]
            sums = []
            for row in range(grid.blocks.rows):
                mask = plan.mask(row, len(k_strips))
                inputs = queries[row], grid.keys(k_strips, row), grid.keys(v_strips, row)
                of_row, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    *[_by_head(x, len(mask)) for x in inputs], attn_mask=mask
                )  # [N, R, Q, E]
                y_rows[row].copy_(_together(of_row).reshape(y_rows[row].shape))
                sums.append(log_sum)
            grid.filled(_cells(y[part]), y_whole)
            return sums

        sums = side_by_side(part_forward, plan.parts, plan.lanes)
        ctx.save_for_backward(q, k, v, y, *chain.from_iterable(sums))
        ctx.plan = plan
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, y, *sums = ctx.saved_tensors
        plan: _Plan = ctx.plan
        grid = plan.grid
        rows = grid.blocks.rows
        dq, dk, dv = [like_projected(x) for x in (q, k, v)]

        def part_backward(number: int) -> None:
            part = plan.parts[number]
            # 3 x [rows, G, 1, columns, bh, bw, C, R, E]
            queries, ys, dys = [grid.cut(_cells(x[part])) for x in (q, y, gradients[0])]
            dq_rows, dq_whole = grid.to_fill(_cells(dq[part]))
            # 2 x [G, columns, S, R, E]
            k_strips, v_strips = [grid.strips(_cells(x[part])) for x in (k, v)]
            dk_strips, dv_strips = torch.empty_like(k_strips), torch.empty_like(v_strips)
            for row in range(rows):
                mask = plan.mask(row, len(k_strips))
                # 2 x [N, K, R, E]
                keys, values = grid.keys(k_strips, row), grid.keys(v_strips, row)
                inputs = dys[row], queries[row], keys, values, ys[row]
                of_row = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    *[_by_head(x, len(mask)) for x in inputs],
                    sums[number * rows + row],
                    0.0,
                    False,
                    attn_mask=mask,
                )
                dq_row, dk_row, dv_row = [_together(x) for x in of_row]  # [N, Q or K, R, E]
                dq_rows[row].copy_(dq_row.reshape(dq_rows[row].shape))
                grid.add_keys(dk_strips, dk_row, row)
                grid.add_keys(dv_strips, dv_row, row)
            grid.filled(_cells(dq[part]), dq_whole)
            for total, of_part in ((dk, dk_strips), (dv, dv_strips)):
                grid.put(_cells(total[part]), of_part)

        side_by_side(part_backward, range(len(plan.parts)), plan.lanes)
        return dq, dk, dv, None


def _cells(x: Tensor) -> Tensor:
    """View [G, R, L, E] -> [G, 1, L, R, E]."""
    return x.transpose(1, 2).unsqueeze(1)


def _by_head(x: Tensor, n: int) -> Tensor:
    """n blocks or windows of a row, [..., R, E], one after another -> [n, R, Q or K, E]."""
    by_head = x.reshape(n, -1, *x.shape[-2:]).transpose(1, 2)
    # The kernel reads the last axis as one run of memory, without asking.
    return by_head if by_head.stride(-1) == 1 else by_head.contiguous()


def _together(x: Tensor) -> Tensor:
    """[N, R, Q, E] -> [N, Q, R, E], as it lies in what the kernel returns."""
    return x.transpose(1, 2)
