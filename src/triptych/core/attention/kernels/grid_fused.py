"""Local attention of a picture by PyTorch's own fused kernel, a row of blocks at a time.

The same rows of blocks as in `grid_tiles`, without any tensor of the weights: the kernel works
through them in its own tiles and computes them again in its backward pass. On a processor with AMX
that kernel is as fast as matrix products alone, so that only the windows' copies are added. Heads
lie side by side, as the projection leaves them (in the order of blocks they are copied so): a
window is then copied in long runs. Gradients add up in the precision of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triptych.core.attention.kernels.grid import Blocks, Grid
from triptych.core.attention.kernels.tiles import like_projected

ROOM = 5 * 2**19
"""Bytes of keys that are computed together at most, so that they stay in the processor's cache.

32 x 32 x 3, 8 heads of 64, forward and backward with 1, 2, 4 and 8 heads together: 120, 110, 111,
128 ms; 64 x 64: 113, 89, 82, 86; 64 x 64 x 3: 442, 431, 446, 485. This takes 4, 4 and 2.
"""


def attend_in_fused_blocks(q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(E)) v of each block over its window, on a CPU.

    q, k, v [B, H, L, E] in raster order; mask [kinds, columns, Q, K] as in `attend_in_blocks`
    -> [B, H, L, E].
    """
    batch, heads, _, width = q.shape
    size = blocks.columns * blocks.n_keys * width * q.element_size()  # of a head's keys in a row
    at_once = max(1, ROOM // size)
    pictures = max(1, min(at_once // heads, batch))
    together = -(-heads // -(-heads // at_once))  # so that the groups are alike
    # [kinds, G columns, 1, Q, K]
    masks = mask if pictures == 1 else mask.repeat(1, pictures, 1, 1)
    plan = _Plan(Grid(blocks), masks.unsqueeze(2), pictures, together)
    y: Tensor = _Fused.apply(q, k, v, plan)
    return y


class _Plan(NamedTuple):
    """What does not change between the passes; G = pictures of a group, R its heads."""

    grid: Grid
    masks: Tensor
    """[kinds, G columns, 1, Q, K]."""
    pictures: int
    heads: int

    def groups(self, batch: int, heads: int) -> Iterator[tuple[slice, slice]]:
        """Parts of the batch and of the heads that are computed together."""
        for first in range(0, batch, self.pictures):
            for head in range(0, heads, self.heads):
                yield slice(first, first + self.pictures), slice(head, head + self.heads)

    def mask(self, row: int, pictures: int) -> Tensor:
        """What is added to the logits in a row of blocks: [N, 1, Q, K], N = pictures x columns."""
        blocks = self.grid.blocks
        return self.masks[blocks.kind(row), : pictures * blocks.columns]


class _Fused(torch.autograd.Function):
    """The loop over groups and rows of blocks."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: _Plan) -> Tensor:
        grid = plan.grid
        y = like_projected(q)
        sums: list[Tensor] = []
        for group in plan.groups(*q.shape[:2]):
            queries = grid.cut(_cells(q[group]))  # [rows, G, 1, columns, bh, bw, C, R E]
            y_rows, y_whole = grid.to_fill(_cells(y[group]))
            k_grid, v_grid = (grid.padded(_cells(x[group])) for x in (k, v))  # 2 x [G, Hp, Wp, .]
            for row in range(grid.blocks.rows):
                mask = plan.mask(row, len(k_grid))
                inputs = queries[row], grid.keys(k_grid, row), grid.keys(v_grid, row)
                part, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    *(_by_head(x, len(mask), q.shape[-1]) for x in inputs), attn_mask=mask
                )  # [N, R, Q, E]
                y_rows[row].copy_(_together(part).reshape(y_rows[row].shape))
                sums.append(log_sum)
            grid.filled(_cells(y[group]), y_whole)
        ctx.save_for_backward(q, k, v, y, *sums)
        ctx.plan = plan
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, y, *sums = ctx.saved_tensors
        plan: _Plan = ctx.plan
        grid = plan.grid
        log_sums = iter(sums)
        dq, dk, dv = (like_projected(x) for x in (q, k, v))
        for group in plan.groups(*q.shape[:2]):
            # 3 x [rows, G, 1, columns, bh, bw, C, R E]
            queries, ys, dys = (grid.cut(_cells(x[group])) for x in (q, y, gradients[0]))
            dq_rows, dq_whole = grid.to_fill(_cells(dq[group]))
            k_grid, v_grid = (grid.padded(_cells(x[group])) for x in (k, v))  # 2 x [G, Hp, Wp, .]
            dk_grid, dv_grid = torch.zeros_like(k_grid), torch.zeros_like(v_grid)
            for row in range(grid.blocks.rows):
                mask = plan.mask(row, len(k_grid))
                keys, values = grid.keys(k_grid, row), grid.keys(v_grid, row)  # 2 x [N, K, R E]
                inputs = dys[row], queries[row], keys, values, ys[row]
                parts = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    *(_by_head(x, len(mask), q.shape[-1]) for x in inputs),
                    next(log_sums),
                    0.0,
                    False,
                    attn_mask=mask,
                )
                dq_part, dk_part, dv_part = (_together(x) for x in parts)  # [N, Q or K, R E]
                dq_rows[row].copy_(dq_part.reshape(dq_rows[row].shape))
                grid.add_keys(dk_grid, dk_part, row)
                grid.add_keys(dv_grid, dv_part, row)
            grid.filled(_cells(dq[group]), dq_whole)
            for total, part in ((dk, dk_grid), (dv, dv_grid)):
                grid.put(_cells(total[group]), part)
        return dq, dk, dv, None


def _cells(x: Tensor) -> Tensor:
    """[G, R, L, E] -> [G, 1, L, R E]; a view where the heads lie side by side."""
    return x.transpose(1, 2).flatten(2).unsqueeze(1)


def _by_head(x: Tensor, n: int, width: int) -> Tensor:
    """n blocks or windows of a row, [..., R E], one after another -> [n, R, Q or K, E]."""
    by_head = x.reshape(n, -1, x.shape[-1] // width, width).transpose(1, 2)
    # The kernel reads the last axis as one run of memory, without asking.
    return by_head if by_head.stride(-1) == 1 else by_head.contiguous()


def _together(x: Tensor) -> Tensor:
    """[N, R, Q, E] -> [N, Q, R E]; a view of what the kernel returns."""
    return x.transpose(1, 2).flatten(2)
