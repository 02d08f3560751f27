"""Local 2-D attention: query blocks of a picture with a halo above and to the sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor

from triptych.core import orders
from triptych.core.attention.interface import AttentionConfig, Example
from triptych.core.attention.softmax import Pattern, SoftmaxAttention, attend


@dataclass(frozen=True)
class Local2D(AttentionConfig):
    """Blocks of pixels read themselves and a halo above and to both sides.

    Image Transformer (Parmar et al. 2018), section 3.3, local 2D; causal only.
    """

    block_height: int = 8
    """Height of a block of queries, in pixels."""
    block_width: int = 8
    """Width of a block of queries, in pixels."""
    up: int = 4
    """Height of the halo above the block, in pixels."""
    side: int = 4
    """Width of the halo to the left and to the right of the block, in pixels."""
    order: Literal["raster", "blocks"] = "raster"
    """Order of generation: `raster` row by row over the picture, `blocks` the paper's."""

    def __post_init__(self) -> None:
        if min(self.block_height, self.block_width) < 1 or min(self.up, self.side) < 0:
            raise ValueError(
                "local 2-D attention needs blocks of at least 1x1 and a halo of at least 0, got "
                f"block {self.block_height}x{self.block_width}, up {self.up}, side {self.side}"
            )
        if self.order not in ("raster", "blocks"):
            raise ValueError(f"order is raster or blocks, got {self.order}")

    def order_of(self, shape: tuple[int, ...]) -> orders.Order:
        if self.order == "blocks":
            return orders.blocks(shape, self.block_height, self.block_width)
        return orders.raster(shape)

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> SoftmaxAttention:
        if not causal:
            raise ValueError("local 2-D attention is causal; an encoder cannot use it")
        pattern = Local2DPattern(
            self.order_of(shape),
            block=(self.block_height, self.block_width),
            up=self.up,
            side=self.side,
        )
        return SoftmaxAttention(d_model, n_heads, pattern)

    @classmethod
    def examples(cls) -> list[Example]:
        shapes: list[tuple[int, ...]] = [(4, 6, 3), (5, 7, 1), (7, 5, 2), (6, 4)]
        settings = [(2, 3, 1, 1), (2, 2, 2, 3), (3, 2, 0, 0), (4, 4, 9, 9), (1, 3, 2, 1)]
        return [
            Example(cls(bh, bw, up, side, order), shape)
            for order in ("raster", "blocks")
            for shape in shapes
            for bh, bw, up, side in settings
        ]


class Local2DPattern(Pattern):
    """Keys of the query's block and its halo that were generated before, in either order.

    The rule is the same for both orders: a key is read if it lies in the block, up to `up` rows
    above or `side` columns beside it, and is not later. In raster order that includes the right
    band above the current row; in block order the right band is always later, as in the paper.

    Kept while decoding: the last `up + block height` rows, a ring of rows; read in a step: those
    rows over `block width + 2 side` columns.
    """

    def __init__(self, order: orders.Order, *, block: tuple[int, int], up: int, side: int) -> None:
        super().__init__()
        height, width, channels = order.shape
        self.length = order.length
        self.block_height, self.block_width = block
        self.up, self.side = up, side
        self.shape = order.shape
        row, column, channel = order.coordinates.unbind(-1)  # 3 x [L]
        self._keep(row=row, column=column)

        # Decoding: a ring of rows, and for each block column the slots that its queries read.
        # The band of columns is shifted inwards at the edges, so that its size is always the same
        # and every slot is real; what it holds too much, `allowed` hides.
        self.kept_rows = min(up + self.block_height, height)
        slot = (row % self.kept_rows * width + column) * channels + channel  # [L]
        band = self._band(self.block_width, side, width)  # [block columns, columns read]
        cells = torch.arange(self.kept_rows).view(1, -1, 1, 1) * width + band[:, None, :, None]
        reads = cells * channels + torch.arange(channels)  # [block columns, rows, columns, C]
        self._keep(slots=slot, reads=reads.flatten(1))

        # Training: the steps of each block's queries and of each block's memory.
        steps = order.steps  # [H, W, C]
        block_rows = torch.arange(0, height, self.block_height)
        block_columns = torch.arange(0, width, self.block_width)
        # A cell beyond the picture's edge stands for the last real one of its block.
        rows = (block_rows[:, None] + torch.arange(self.block_height)).clamp(max=height - 1)
        columns = (block_columns[:, None] + torch.arange(self.block_width)).clamp(max=width - 1)
        queries = steps[rows[:, None, :, None], columns[None, :, None, :]]  # [R, S, bh, bw, C]
        above = self._band_above(height)  # [R, rows read]
        keys = steps[above[:, None, :, None], band[None, :, None, :]]  # [R, S, mh, mw, C]
        queries, keys = queries.flatten(2).flatten(0, 1), keys.flatten(2).flatten(0, 1)  # [N, .]
        back = torch.empty(self.length, dtype=torch.int64)
        back[queries.flatten()] = torch.arange(queries.numel())
        mask = self.allowed(queries.unsqueeze(-1), keys.unsqueeze(-2))  # [N, Q, K]
        self._keep(queries=queries, keys=keys, back=back, mask=mask)

    row: Tensor  # [L] of every step
    column: Tensor  # [L]
    slots: Tensor  # [L] where each step's key is kept
    reads: Tensor  # [block columns, W] the slots that a block's queries read
    queries: Tensor  # [N, Q] steps of each block
    keys: Tensor  # [N, K] steps of each block's memory
    back: Tensor  # [L] where each step stands among the queries
    mask: Tensor  # [N, Q, K]

    def allowed(self, query: Tensor, key: Tensor) -> Tensor:
        top = self.row[query] // self.block_height * self.block_height
        left = self.column[query] // self.block_width * self.block_width
        # Below the block and right of its halo too: there all keys are later in raster order,
        # but in block order rows below belong to later blocks only.
        row, column = self.row[key], self.column[key]
        near = (row >= top - self.up) & (row < top + self.block_height)
        near = near & (column >= left - self.side)
        near = near & (column < left + self.block_width + self.side)
        return near & (key <= query)

    def n_slots(self, max_length: int) -> int:
        _, width, channels = self.shape
        return self.kept_rows * width * channels

    def slot(self, position: Tensor, n_slots: int) -> Tensor:
        return self.slots[position]

    def read(self, position: Tensor, n_slots: int) -> Tensor | None:
        block_column = self.column.index_select(0, position) // self.block_width  # [1]
        return self.reads.index_select(0, block_column)[0]  # [W]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        batch, heads, length, _ = q.shape
        if length < self.length:  # a prefix: what comes later is never read by it
            missing = (0, 0, 0, self.length - length)
            q, k, v = (torch.nn.functional.pad(x, missing) for x in (q, k, v))
            if padding is not None:
                padding = torch.nn.functional.pad(padding, missing[2:])

        def gather(x: Tensor, steps: Tensor) -> Tensor:
            gathered = x.index_select(2, steps.flatten())  # [B, H, N Q, E]
            return rearrange(gathered, "b h (n q) e -> n (b h) q e", n=steps.shape[0])

        mask = self.mask.unsqueeze(1)  # [N, 1, Q, K]
        if padding is not None:
            hidden = padding[:, self.keys].transpose(0, 1)  # [N, B, K]
            mask = mask & ~hidden.repeat_interleave(heads, dim=1).unsqueeze(2)  # [N, B H, Q, K]
        y = attend(gather(q, self.queries), gather(k, self.keys), gather(v, self.keys), mask=mask)
        y = rearrange(y, "n (b h) q e -> b h (n q) e", b=batch)
        return y.index_select(2, self.back)[:, :, :length]  # [B, H, L, E]

    def _band(self, block: int, halo: int, extent: int) -> Tensor:
        """Columns that each block column reads: [block columns, columns]."""
        size = min(block + 2 * halo, extent)
        first = (torch.arange(0, extent, block) - halo).clamp(0, extent - size)
        return first[:, None] + torch.arange(size)

    def _band_above(self, extent: int) -> Tensor:
        """Rows that each block row reads: [block rows, rows]."""
        size = min(self.up + self.block_height, extent)
        first = (torch.arange(0, extent, self.block_height) - self.up).clamp(0, extent - size)
        return first[:, None] + torch.arange(size)

    def _keep(self, **tables: Tensor) -> None:
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)
