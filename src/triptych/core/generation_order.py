"""Generation orders: the order in which the sub-pixels of an image become a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor, nn

Cell = tuple[int, int, int]
"""Row, column and channel."""


class GenerationOrder(nn.Module):
    """A bijection between the cells of a grid and sequence positions.

    Masks, position encodings, caches, sampling and the conversion to images all use this object,
    so that training and decoding cannot differ in their order. A module, so that its index tensors
    are on the device of the model that holds it.

    shape: height, width and channels. cells: every cell of the grid, in the order of generation.
    """

    def __init__(self, shape: tuple[int, int, int], cells: Sequence[Cell]) -> None:
        super().__init__()
        self.shape = shape
        self.length = len(cells)
        coordinates = torch.tensor(cells, device="cpu")  # also while building on "meta"
        row, column, channel = coordinates.unbind(1)
        cell = (row * shape[1] + column) * shape[2] + channel
        self.register_buffer("coordinates", coordinates, persistent=False)
        self.register_buffer("cell", cell, persistent=False)
        self.register_buffer("positions", cell.argsort().view(shape), persistent=False)

    coordinates: Tensor  # int64 [L, 3], row, column and channel of every position
    cell: Tensor  # int64 [L], cell of every position, in raster order
    positions: Tensor  # int64 [H, W, C], the position at which each cell is generated

    def to_sequence(self, image: Tensor) -> Tensor:
        """[B, H, W, C, ...] -> [B, L, ...]; ValueError for images of another shape."""
        if tuple(image.shape[1:4]) != self.shape:
            raise ValueError(
                f"this order is for images of {self.shape}, got a batch of {tuple(image.shape)}"
            )
        return image.flatten(1, 3).index_select(1, self.cell)  # [B, L, ...]

    def to_images(self, sequence: Tensor) -> Tensor:
        """[B, L, ...] -> [B, H, W, C, ...]."""
        cells = sequence.index_select(1, self.positions.flatten())  # [B, HWC, ...]
        return cells.view(-1, *self.shape, *sequence.shape[2:])  # [B, H, W, C, ...]


def grid_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(L,), (H, W) or (H, W, C) as height, width and channels; a sequence is one row."""
    if len(shape) == 1:
        return (1, shape[0], 1)
    return (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)


def raster(shape: tuple[int, ...]) -> GenerationOrder:
    """Row by row, left to right, channels innermost."""
    height, width, channels = grid_shape(shape)
    cells = product(range(height), range(width), range(channels))
    return GenerationOrder((height, width, channels), list(cells))


def blocks(shape: tuple[int, ...], block_height: int, block_width: int) -> GenerationOrder:
    """Blocks in raster order, raster order inside a block (Parmar et al. 2018, section 3.3).

    Block sizes are in pixels, so the channels of a pixel stay together. Blocks at the right and
    the lower edge end with the image.
    """

    def block_first(cell: Cell) -> tuple[int, ...]:
        row, column, _ = cell
        return (row // block_height, column // block_width, *cell)

    height, width, channels = grid_shape(shape)
    cells = product(range(height), range(width), range(channels))
    return GenerationOrder((height, width, channels), sorted(cells, key=block_first))
