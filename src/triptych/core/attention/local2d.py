"""Local 2-D attention: blocks of an image read themselves and a halo above and to the sides."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triptych.core import generation_order as orders
from triptych.core.attention.backends.windows import Windows
from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention


@dataclass(frozen=True)
class Local2D(AttentionConfig):
    """Blocks of pixels read themselves and a halo above and to both sides.

    Image Transformer (Parmar et al. 2018), section 3.3, local 2D; causal only. Time and memory
    grow with the number of pixels.
    """

    block_height: int = 8
    """Height of a block of queries, in pixels."""
    block_width: int = 8
    """Width of a block of queries, in pixels."""
    halo_up: int = 4
    """Height of the halo above the block, in pixels."""
    halo_side: int = 4
    """Width of the halo to the left and to the right of the block, in pixels."""
    order: Literal["raster", "blocks"] = "raster"
    """Order of generation: `raster` row by row over the image, `blocks` block by block."""

    def __post_init__(self) -> None:
        if min(self.block_height, self.block_width) < 1 or min(self.halo_up, self.halo_side) < 0:
            raise ValueError(
                "local 2-D attention needs blocks of at least 1x1 and a halo of at least 0, got "
                f"block {self.block_height}x{self.block_width}, halo_up {self.halo_up}, "
                f"halo_side {self.halo_side}"
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
            halo_up=self.halo_up,
            halo_side=self.halo_side,
        )
        return MultiHeadAttention(d_model, n_heads, pattern)

    @classmethod
    def examples(cls) -> list[Example]:
        # Every pair of an order, an image size and a setting of block and halo is in one example.
        shapes: list[tuple[int, ...]] = [(4, 6, 3), (7, 5, 2), (5, 7)]
        settings = [(2, 3, 1, 1), (2, 2, 2, 3), (3, 2, 0, 0), (4, 4, 9, 9)]
        return [
            Example(cls(*setting, "raster" if (row + column) % 2 == 0 else "blocks"), shape)
            for row, shape in enumerate(shapes)
            for column, setting in enumerate(settings)
        ]


class Local2DPattern(MaskPattern):
    """Keys of the query's block and its halo that were generated before, in either order.

    A key is visible if it lies in the block, up to `halo_up` rows above or `halo_side` columns to
    its sides, and is not after the query. The halo to the right is visible above the query's row
    in raster order, and above the block in block order, where the block to the right is later.

    The cache keeps the last `halo_up + block height` rows of the image as a ring of rows.
    """

    def __init__(
        self,
        order: orders.GenerationOrder,
        *,
        block: tuple[int, int],
        halo_up: int,
        halo_side: int,
    ) -> None:
        super().__init__()
        self.shape = order.shape
        self.block_height, self.block_width = block
        self.halo_up, self.halo_side = halo_up, halo_side
        self.order_hash = hash(tuple(order.steps.flatten().tolist()))
        row, column, _ = order.coordinates.unbind(-1)
        steps = order.steps.flatten()
        for name, table in {
            "row": row,
            "column": column,
            "steps": steps,
            "cells": steps.argsort(),
        }.items():
            self.register_buffer(name, table, persistent=False)
        self.windows = Windows(
            order, self.visible, block=block, halo_up=halo_up, halo_side=halo_side
        )

    row: Tensor  # int64 [L], row of the pixel at each position
    column: Tensor  # int64 [L], its column
    steps: Tensor  # int64 [L], position of each cell in raster order
    cells: Tensor  # int64 [L], cell of each position

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        top = self.row[query] // self.block_height * self.block_height
        left = self.column[query] // self.block_width * self.block_width
        row, column = self.row[key], self.column[key]
        # The rows below and the columns to the right need bounds too: raster order generates some
        # of these cells before later rows of the block.
        near = (row >= top - self.halo_up) & (row < top + self.block_height)
        near = near & (column >= left - self.halo_side)
        near = near & (column < left + self.block_width + self.halo_side)
        return near & (key <= query)

    def sharing_key(self) -> Hashable:
        sizes = self.block_height, self.block_width, self.halo_up, self.halo_side
        return type(self), self.shape, self.order_hash, sizes

    def n_slots(self, max_length: int, lookahead: int = 0) -> int:
        height, width, channels = self.shape
        row = width * channels
        # The rows of blocks that the lookahead enters are kept whole, for block order.
        entered = -(-lookahead // (self.block_height * row)) * self.block_height
        return min(self.halo_up + self.block_height + entered, height) * row

    def filled_length(self, length: int, n_slots: int) -> int:
        return n_slots

    def slot(self, position: Tensor, n_slots: int) -> Tensor:
        return self.cells[position] % n_slots

    def slot_positions(self, position: Tensor, n_slots: int) -> Tensor:
        """Position in each slot; of the image rows that map to one slot, the readable one.

        Several image rows map to one slot: at most one is inside the halo or the block of the
        query. Without one, the row is below the block, which the query does not see.
        """
        height, width, channels = self.shape
        size = width * channels  # of a row
        slots = torch.arange(n_slots, device=position.device)  # [S]
        block_row = self.row[position[..., :1]] // self.block_height
        first = (block_row * self.block_height - self.halo_up).clamp(min=0)  # [..., 1]
        row = first + (slots // size - first) % (n_slots // size)  # [..., S]
        cell = row * size + slots % size
        step = self.steps[cell.clamp(max=len(self.steps) - 1)]
        return step.masked_fill(row >= height, -1)
