"""In which order the cells of a image are generated, and the way there and back."""

from __future__ import annotations

import torch
from torch import Tensor


class GenerationOrder:
    """A walk over every cell of a grid (row, column, channel), each visited once.

    The one object that mask, shift, position code, cache, sampler and the way back to a image
    ask, so that a model cannot be trained in one order and decoded in another.

    rank: int64 [H, W, C], a number per cell; cells are visited by rising number.
    Raises ValueError where two cells have the same number.
    """

    def __init__(self, rank: Tensor) -> None:
        if rank.ndim != 3:
            raise ValueError(f"an order ranks a grid of 3 axes, got {rank.ndim}")
        self.shape: tuple[int, int, int] = (rank.shape[0], rank.shape[1], rank.shape[2])
        flat = rank.flatten()  # [L]
        if bool((flat.sort().values.diff() == 0).any()):
            raise ValueError("two cells of an order have the same rank")
        # _cell[t]: raster index of the cell visited at step t; _step: its inverse.
        self._cell = flat.argsort()  # [L]
        self._step = self._cell.argsort()  # [L]

    @property
    def length(self) -> int:
        """Number of steps: height times width times channels."""
        height, width, channels = self.shape
        return height * width * channels

    @property
    def coordinates(self) -> Tensor:
        """Row, column and channel of every step: int64 [L, 3]."""
        _, width, channels = self.shape
        pixel = self._cell // channels
        return torch.stack([pixel // width, pixel % width, self._cell % channels], dim=-1)

    @property
    def steps(self) -> Tensor:
        """The step at which each cell is visited: int64 [H, W, C]."""
        return self._step.view(self.shape)

    def to_sequence(self, image: Tensor) -> Tensor:
        """[B, H, W, C, ...] -> [B, L, ...], in the order of generation."""
        self._check(image)
        return image.flatten(1, 3).index_select(1, self._cell.to(image.device))  # [B, L, ...]

    def to_images(self, sequence: Tensor) -> Tensor:
        """[B, L, ...] -> [B, H, W, C, ...]; the inverse of `to_sequence`."""
        if sequence.ndim < 2 or sequence.shape[1] != self.length:
            raise ValueError(
                f"a sequence of this order has {self.length} steps, got {tuple(sequence.shape)}"
            )
        cells = sequence.index_select(1, self._step.to(sequence.device))  # [B, HWC, ...]
        return cells.view(-1, *self.shape, *sequence.shape[2:])  # [B, H, W, C, ...]

    def _check(self, image: Tensor) -> None:
        if tuple(image.shape[1:4]) != self.shape:
            raise ValueError(
                f"this order walks grids of {self.shape}, got a batch of {tuple(image.shape)}"
            )


def grid_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(L,), (H, W) or (H, W, C) as height, width, channels; a line is one row.

    Raises ValueError on any other number of axes and on an empty axis.
    """
    if len(shape) not in (1, 2, 3) or min(shape) < 1:
        raise ValueError(f"a shape has one to three axes of at least 1, got {shape}")
    if len(shape) == 1:
        return (1, shape[0], 1)
    return (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)


def raster(shape: tuple[int, ...]) -> GenerationOrder:
    """Row by row over the whole image, left to right, channels innermost."""
    height, width, channels = grid_shape(shape)
    rank = torch.arange(height * width * channels, device="cpu")  # also while building on "meta"
    return GenerationOrder(rank.view(height, width, channels))


def blocks(shape: tuple[int, ...], block_height: int, block_width: int) -> GenerationOrder:
    """Block by block in raster order, raster inside a block (Image Transformer, section 3.3).

    Sizes are in pixels, so a block never splits a pixel's channels. Blocks at the right and the
    lower edge are cut where the image ends.
    """
    height, width, channels = grid_shape(shape)
    row = torch.arange(height).view(-1, 1, 1)  # [H, 1, 1]
    column = torch.arange(width).view(1, -1, 1)  # [1, W, 1]
    channel = torch.arange(channels).view(1, 1, -1)  # [1, 1, C]
    rank = row // block_height  # the most significant digit first
    for digit, extent in (
        (column // block_width, -(-width // block_width)),
        (row % block_height, block_height),
        (column % block_width, block_width),
        (channel, channels),
    ):
        rank = rank * extent + digit
    return GenerationOrder(rank)
