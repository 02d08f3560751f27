"""Local 2-D attention: blocks of an image read themselves and a halo above and to the sides."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triptych.core.attention.mask import CacheLayout, MaskPattern, Windows
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.positions import GenerationOrder, blocks, raster
from triptych.types import NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class Local2D(AttentionConfig):
    """Blocks of pixels read themselves and a halo above and to both sides.

    Image Transformer (Parmar et al. 2018), section 3.3, local 2D; causal only. Time and memory
    grow with the number of pixels. Blocks and halo are sets of keys, and a key holds the value
    before its own position: docs/learn/local-attention.md says which pixels they cover.
    """

    causal_only = True

    block_height: PositiveInt = 8
    """Height of a block of queries, in pixels."""
    block_width: PositiveInt = 8
    """Width of a block of queries, in pixels."""
    halo_up: NonNegativeInt = 4
    """Height of the halo above the block, in pixels."""
    halo_side: NonNegativeInt = 4
    """Width of the halo to the left and to the right of the block, in pixels."""
    order: Literal["raster", "blocks"] = "raster"
    """Order of generation: `raster` row by row over the image, `blocks` block by block."""
    wrapped: bool = False
    """Whether the first column also stands to the right of the last one, a row higher. Its keys
    hold the last pixel of the row above, which the pixel below that one else never sees. Raster
    order alone; false in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wrapped and (self.order != "raster" or self.halo_side == 0):
            raise ValueError(
                "wrapped is true, which needs order raster and halo_side of at least 1"
            )

    def order_of(self, shape: tuple[int, ...]) -> GenerationOrder:
        if self.order == "blocks":
            return blocks(shape, self.block_height, self.block_width)
        return raster(shape)

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return Local2DPattern(self, self.order_of(shape))


class Local2DPattern(MaskPattern):
    """Keys of the query's block and its halo that were generated before, in either order.

    A key is visible if it lies in the block, up to `halo_up` rows above or `halo_side` columns to
    its sides, and is not after the query. The halo to the right is visible above the query's row
    in raster order, and above the block in block order, where the block to the right is later.
    """

    def __init__(self, config: Local2D, order: GenerationOrder) -> None:
        super().__init__(RowsOfImage(config, order))
        self.config = config
        row, column, _ = order.coordinates.unbind(-1)
        self.register_buffer("row", row, persistent=False)
        self.register_buffer("column", column, persistent=False)
        block = config.block_height, config.block_width
        halo = config.halo_up, config.halo_side
        self.width = order.shape[1]
        self.windows = Windows(order, self.visible, block, halo, wrapped=config.wrapped)

    row: Tensor  # int64 [L], row of the pixel at each position
    column: Tensor  # int64 [L], its column

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        height, width = self.config.block_height, self.config.block_width
        up, side = self.config.halo_up, self.config.halo_side
        top = self.row[query] // height * height
        left = self.column[query] // width * width
        row, column = self.row[key], self.column[key]
        if self.config.wrapped:
            # Blocks that reach the first column from the left see it where it is.
            moves = (column == 0) & (row > 0) & (left > side)
            row, column = torch.where(moves, row - 1, row), torch.where(moves, self.width, column)
        # The rows below and the columns to the right need bounds too: raster order generates some
        # of these cells before later rows of the block.
        near = (row >= top - up) & (row < top + height)
        near = near & (column >= left - side) & (column < left + width + side)
        return near & (key <= query)


class RowsOfImage(CacheLayout):
    """The last `halo_up + block height` rows of the image, as a ring of cells in raster order."""

    def __init__(self, config: Local2D, order: GenerationOrder) -> None:
        super().__init__()
        self.block_height, self.halo_up = config.block_height, config.halo_up
        self.order = order
        self.height, width, channels = order.shape
        self.row_size = width * channels

    def n_slots(self, max_length: int, lookahead: int = 0) -> int:
        # The rows of blocks that the lookahead enters are kept whole, for block order.
        entered = -(-lookahead // (self.block_height * self.row_size)) * self.block_height
        return min(self.halo_up + self.block_height + entered, self.height) * self.row_size

    def filled_length(self, length: int, n_slots: int) -> int:
        return n_slots

    def slots(self, positions: Tensor, n_slots: int) -> Tensor:
        return self.order.cell[positions] % n_slots

    def slot_positions(self, positions: Tensor, n_slots: int) -> Tensor:
        """Position in each slot; of the cells that share it the one that the query may see.

        At most one is in the halo or the block; without one it is a cell below, which is not seen.
        """
        row = self.order.cell[positions[..., :1]] // self.row_size
        block_top = row // self.block_height * self.block_height
        top = (block_top - self.halo_up).clamp(min=0)  # first row of the halo
        first = top * self.row_size  # [..., 1]
        cell = first + (torch.arange(n_slots, device=positions.device) - first) % n_slots
        inside = cell < self.order.length  # [..., S]
        position_of = self.order.positions.flatten()  # [L]
        return position_of[cell.clamp(max=self.order.length - 1)].masked_fill(~inside, -1)
