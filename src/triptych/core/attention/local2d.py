"""Local 2-D attention: query blocks of a picture with a halo above and to the sides."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.core import generation_order as orders
from triptych.core.attention.backends.dispatch import attend_masked, attend_over_picture
from triptych.core.attention.backends.grid import Blocks, hidden_keys
from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention

LARGEST_SHARE = 0.4
"""Share of all pairs from which on full attention under a mask is faster than blocks."""


@dataclass(frozen=True)
class Local2D(AttentionConfig):
    """Blocks of pixels read themselves and a halo above and to both sides.

    Image Transformer (Parmar et al. 2018), section 3.3, local 2D; causal only.

    Time and memory grow with the pixels. Where the windows of all blocks together hold more than
    two fifths of all pairs, the picture is too small for that and full attention under a mask
    serves it: with blocks of 8x8 and a halo of 4, forward and backward took blocks 1.2 times as
    long as the mask at 16x16x3 (three quarters of all pairs) and 0.55 times at 24x24x3 (a third);
    in bfloat16 1.0 and 0.26 (with AMX 1.2 and 0.52, in bfloat16 1.1 and 0.47). Against full causal
    attention blocks were 2.2 times as fast at 32x32x3 and 7 times at 64x64, in bfloat16 3.6 and 10
    times (two cores with AVX512-BF16). With AMX, where PyTorch's own is faster and serves the
    blocks in float32 too, 1.6 to 2.0 and 3.7 to 4.7 times, in bfloat16 1.8 to 2.0 and 4.0 to 4.3.
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

    def order_of(self, shape: tuple[int, ...]) -> orders.GenerationOrder:
        if self.order == "blocks":
            return orders.blocks(shape, self.block_height, self.block_width)
        return orders.raster(shape)

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> MultiHeadAttention:
        if not causal:
            raise ValueError("local 2-D attention is causal; an encoder cannot use it")
        pattern = Local2DPattern(
            self.order_of(shape),
            block=(self.block_height, self.block_width),
            up=self.up,
            side=self.side,
        )
        return MultiHeadAttention(d_model, n_heads, pattern)

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


class Local2DPattern(MaskPattern):
    """Keys of the query's block and its halo that were generated before, in either order.

    The rule is the same for both orders: a key is read if it lies in the block, up to `up` rows
    above or `side` columns beside it, and is not later. In raster order that includes the right
    band above the current row; in block order the right band is always later, as in the paper.

    Kept while decoding: the last `up + block height` rows, a ring of rows; read in a step: those
    rows over `block width + 2 side` columns.
    """

    def __init__(
        self, order: orders.GenerationOrder, *, block: tuple[int, int], up: int, side: int
    ) -> None:
        super().__init__()
        height, width, channels = order.shape
        self.length = order.length
        self.block_height, self.block_width = block
        self.up, self.side = up, side
        self.shape = order.shape
        self.walk = hash(tuple(order.steps.flatten().tolist()))  # once: it has L numbers
        row, column, _ = order.coordinates.unbind(-1)  # 3 x [L]
        self._keep(row=row, column=column)

        # Decoding: a ring of rows, and for each block column the slots that its queries read.
        # The band of columns is shifted inwards at the edges, so that its size is always the same
        # and every slot is real; what it holds too much, `visible` hides.
        band = self._band(self.block_width, side, width)  # [block columns, columns read]
        reads = band.unsqueeze(-1) * channels + torch.arange(channels)  # [., columns, C]
        steps = order.steps.flatten()  # [L]
        self._keep(reads=reads.flatten(1), steps=steps, cells=steps.argsort())
        self.rearranged = bool((steps.diff() < 0).any())

        # Training: what a row of blocks hides, or where few positions are better served so, all.
        self.blocks = Blocks(height, width, channels, self.block_height, self.block_width, up, side)
        self.in_blocks = self.blocks.n_pairs < LARGEST_SHARE * self.length**2
        if self.in_blocks:
            self._keep(hidden=hidden_keys(self.blocks, order.steps))
        else:
            position = torch.arange(self.length)
            self._keep(visible_pairs=self.visible(position.unsqueeze(1), position))

    row: Tensor  # [L] of every step
    column: Tensor  # [L]
    reads: Tensor  # [block columns, .] the places in a row that a block's queries read
    steps: Tensor  # [L] when each cell is visited, the cells in raster order
    cells: Tensor  # [L] which cell each step visits
    hidden: Tensor  # [kinds, block columns, Q, K] see `hidden_keys`
    visible_pairs: Tensor  # [L, L]

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        top = self.row[query] // self.block_height * self.block_height
        left = self.column[query] // self.block_width * self.block_width
        # Below the block and right of its halo too: there all keys are later in raster order,
        # but in block order rows below belong to later blocks only.
        row, column = self.row[key], self.column[key]
        near = (row >= top - self.up) & (row < top + self.block_height)
        near = near & (column >= left - self.side)
        near = near & (column < left + self.block_width + self.side)
        return near & (key <= query)

    def n_slots(self, max_length: int, ahead: int = 0) -> int:
        height, width, channels = self.shape
        row = width * channels
        # Of what lies ahead the rows of blocks that it enters, whole, as block order does.
        entered = -(-ahead // (self.block_height * row)) * self.block_height
        return min(self.up + self.block_height + entered, height) * row

    def n_used(self, length: int, n_slots: int) -> int:
        return n_slots

    def kind(self) -> Hashable:
        sizes = self.block_height, self.block_width, self.up, self.side
        return type(self), self.shape, self.walk, sizes

    def slot(self, position: Tensor, n_slots: int) -> Tensor:
        return self.cells[position] % n_slots

    def read(self, position: Tensor, n_slots: int) -> Tensor | None:
        if position.shape[-1] > 1:  # they may lie in blocks side by side
            return None
        block_column = self.column[position] // self.block_width  # [..., 1]
        _, width, channels = self.shape
        rows = torch.arange(0, n_slots, width * channels, device=position.device)
        return (rows.unsqueeze(1) + self.reads[block_column]).flatten(-2)  # [..., W]

    def held(self, position: Tensor, slots: Tensor, n_slots: int) -> Tensor:
        """Of the rows that share a place in the ring, the one that the query could read.

        From the first row that it reads on, no two share one; a row below is not yet visited.
        """
        height, width, channels = self.shape
        size = width * channels  # of a row
        block_row = self.row[position[..., :1]] // self.block_height
        first = (block_row * self.block_height - self.up).clamp(min=0)  # [..., 1]
        row = first + (slots // size - first) % (n_slots // size)  # [..., W]
        cell = row * size + slots % size
        step = self.steps[cell.clamp(max=self.length - 1)]
        return step.masked_fill(row >= height, -1)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, dropout: float = 0.0
    ) -> Tensor:
        length = q.shape[2]
        if length > self.length:
            raise ValueError(f"a picture of {self.length} cells has no sequence of {length}")
        if not self.in_blocks:
            visible = self.visible_pairs[:length, :length]
            return attend_masked(q, k, v, visible, padding=padding, dropout=dropout)
        missing = self.length - length
        if missing:  # a prefix: what comes later is never read by it
            q, k, v = (F.pad(x, (0, 0, 0, missing)) for x in (q, k, v))
            padding = None if padding is None else F.pad(padding, (0, missing))
        if self.rearranged:
            q, k, v = (Rearranged.apply(x, self.steps, self.cells) for x in (q, k, v))
            padding = None if padding is None else padding.index_select(1, self.steps)
        y = attend_over_picture(q, k, v, self.blocks, self.hidden, padding=padding, dropout=dropout)
        if self.rearranged:
            y = Rearranged.apply(y, self.cells, self.steps)
        return y[:, :, :length]  # [B, H, L, E]

    def _band(self, block: int, halo: int, extent: int) -> Tensor:
        """Columns that each block column reads: [block columns, columns]."""
        size = min(block + 2 * halo, extent)
        first = (torch.arange(0, extent, block) - halo).clamp(0, extent - size)
        return first[:, None] + torch.arange(size)

    def _keep(self, **tables: Tensor) -> None:
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)


class Rearranged(torch.autograd.Function):
    """Positions in another order, [B, H, L, E]; the way back is the inverse order.

    Autograd would add up what it gathered, position by position, which takes as long as attention.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return x.index_select(2, order)  # [B, H, L, E]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (inverse,) = ctx.saved_tensors
        return gradients[0].index_select(2, inverse), None, None
