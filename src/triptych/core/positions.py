"""Positions of a sequence: the order in which the cells of an image become one, and encodings.

An encoding is a vector added to the inputs of a stack, or a rotation of queries and keys.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from triptych.core.embeddings import embedding_table

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

    Sizes are in pixels; blocks at the right and the lower edge end with the image.
    """
    height, width, channels = grid_shape(shape)
    cells = product(range(height), range(width), range(channels))
    in_blocks = sorted(cells, key=lambda at: (at[0] // block_height, at[1] // block_width, *at))
    return GenerationOrder((height, width, channels), in_blocks)


@dataclass(frozen=True)
class PositionConfig(ABC):
    """Settings of a position encoding."""

    @abstractmethod
    def build(self, d_model: int, order: GenerationOrder) -> nn.Module:
        """Make the module whose vectors are added to the inputs: index int64 [...] -> [..., D].

        order: the coordinates of every position; its length is the longest sequence.
        """

    def build_rotary(self, d_head: int) -> RotaryEmbedding | None:
        """Make the rotation of queries and keys; None for encodings that are added."""
        return None


@dataclass(frozen=True)
class Sinusoidal(PositionConfig):
    """Fixed sinusoids of the position (Vaswani et al. 2017, section 3.5)."""

    def build(self, d_model: int, order: GenerationOrder) -> nn.Module:
        return SinusoidalEmbedding(d_model)


@dataclass(frozen=True)
class Learned(PositionConfig):
    """A learned vector per position."""

    def build(self, d_model: int, order: GenerationOrder) -> nn.Module:
        return LearnedEmbedding(order.length, d_model)


@dataclass(frozen=True)
class Axial(PositionConfig):
    """Learned vectors of the row, the column and the channel of an image's position."""

    def build(self, d_model: int, order: GenerationOrder) -> nn.Module:
        return AxialEmbedding(order, d_model)


@dataclass(frozen=True)
class Metrical(PositionConfig):
    """Learned vectors of the position within repeating cycles: the voice, the beat, the bar."""

    cycles: tuple[tuple[int, int], ...] = ((1, 4),)
    """Pairs (divide, modulo), in positions: position // divide % modulo chooses the vector."""

    def __post_init__(self) -> None:
        if not self.cycles or any(min(cycle) < 1 for cycle in self.cycles):
            raise ValueError(
                f"cycles must be pairs (divide, modulo) of at least 1, got {self.cycles}"
            )

    def build(self, d_model: int, order: GenerationOrder) -> nn.Module:
        return MetricalEmbedding(d_model, self.cycles)


@dataclass(frozen=True)
class Rotary(PositionConfig):
    """Rotation of queries and keys by their position (Su et al. 2021, 2104.09864).

    Relative biases would read rotated queries: building such a model raises ValueError.
    """

    base: float = 10000.0
    """Sets the longest wavelength: 2 pi base^((E - 2) / E) positions for heads of width E."""

    def __post_init__(self) -> None:
        if self.base <= 1:
            raise ValueError(f"base must be above 1, got {self.base}")

    def build(self, d_model: int, order: GenerationOrder) -> nn.Module:
        return NoEmbedding(d_model)

    def build_rotary(self, d_head: int) -> RotaryEmbedding:
        return RotaryEmbedding(d_head, self.base)


@dataclass(frozen=True)
class NoPositions(PositionConfig):
    """No position encoding, for attention that reads distances, such as relative attention."""

    def build(self, d_model: int, order: GenerationOrder) -> nn.Module:
        return NoEmbedding(d_model)


class SinusoidalEmbedding(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos; for any position, in float64."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, got {d_model}")
        self.d_model = d_model

    def forward(self, index: Tensor) -> Tensor:
        return interleave(angles(index, self.d_model, base=10000.0))  # [..., D]


class LearnedEmbedding(nn.Module):
    """A vector per position below max_length."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.table = embedding_table(max_length, d_model)

    def forward(self, index: Tensor) -> Tensor:
        vectors: Tensor = self.table(index)  # [..., D]
        return vectors


class AxialEmbedding(nn.Module):
    """Half of the features encode the row, the other half the column and the channel.

    Learned tables (Parmar et al. 2018, section 3.1). There the column and the channel share one
    index; here each has a table, and the two vectors are added. The tables of rows and columns
    start as half of `sinusoidal_init`, so that neighbours have similar vectors.
    """

    def __init__(self, order: GenerationOrder, d_model: int) -> None:
        super().__init__()
        height, width, channels = order.shape
        half = d_model // 2
        self.row = nn.Embedding(height, half)
        self.column = nn.Embedding(width, d_model - half)
        self.channel = nn.Embedding(channels, d_model - half)
        nn.init.normal_(self.channel.weight, std=d_model**-0.5)
        with torch.no_grad():
            for table in (self.row, self.column):
                table.weight.copy_(0.5 * sinusoidal_init(*table.weight.shape))
        self.register_buffer("coordinates", order.coordinates, persistent=False)

    coordinates: Tensor

    def forward(self, index: Tensor) -> Tensor:
        row, column, channel = self.coordinates[index].unbind(-1)  # 3 x [...]
        second = self.column(column) + self.channel(channel)  # [..., D - D / 2]
        return torch.cat([self.row(row), second], dim=-1)  # [..., D]


class MetricalEmbedding(nn.Module):
    """The sum of a learned vector of (index // divide) % modulo for each cycle.

    For chorales of four voices in turn, (1, 4) is the voice and (4, 16) the sixteenth in a bar.
    """

    def __init__(self, d_model: int, cycles: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.cycles = tuple(cycles)
        self.tables = nn.ModuleList(embedding_table(modulo, d_model) for _, modulo in cycles)

    def forward(self, index: Tensor) -> Tensor:
        vectors = [
            table(index // divide % modulo)
            for (divide, modulo), table in zip(self.cycles, self.tables, strict=True)
        ]
        return torch.stack(vectors).sum(0)  # [..., D]


class NoEmbedding(nn.Module):
    """Zeros: nothing is added to the inputs."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, index: Tensor) -> Tensor:
        return torch.zeros(*index.shape, self.d_model, device=index.device)  # [..., D]


class SumOfEmbeddings(nn.Module):
    """The sum of several position encodings."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, index: Tensor) -> Tensor:
        return torch.stack([part(index) for part in self.parts]).sum(0)  # [..., D]


class RotaryEmbedding(nn.Module):
    """Rotate each pair of features (2i, 2i+1) by the angle position * base^(-2i/E).

    A product of a rotated query and a rotated key depends on the distance of their positions
    alone (Su et al. 2021, section 3.2.2, equation 15). The layers of a stack share one `rotation`.
    """

    def __init__(self, d_head: int, base: float = 10000.0) -> None:
        super().__init__()
        if d_head % 2:
            raise ValueError(f"rotary positions need heads of an even width, got {d_head}")
        self.d_head, self.base = d_head, base

    def rotation(self, positions: Tensor) -> Tensor:
        """Factors of the rotation to positions int64 [..., L]: float64 [..., 2, L, E].

        The first is that of the feature itself, the cosine. The second is that of the other
        feature of its pair: minus the sine for an even feature, plus the sine for an odd one.
        """
        angle = angles(positions, self.d_head, self.base)  # [..., L, E / 2]
        cos, sin = angle.cos(), angle.sin()
        own = torch.stack([cos, cos], dim=-1).flatten(-2)  # [..., L, E]
        other = torch.stack([-sin, sin], dim=-1).flatten(-2)  # [..., L, E]
        return torch.stack([own, other], dim=-3)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """x [..., L, E] with the `rotation` of its L positions -> [..., L, E]."""
        own, other = rotation.to(x.dtype).unbind(-3)  # 2 x [L, E]
        paired = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)  # the other feature of the pair
        rotated: Tensor = x * own + paired * other
        return rotated


def angles(index: Tensor, width: int, base: float) -> Tensor:
    """index * base^(-2i / width) for i = 0..width / 2 - 1: [...] -> [..., width / 2]."""
    index = exact(index)
    even = torch.arange(0, width, 2, dtype=index.dtype, device=index.device)  # [width / 2]
    return index.unsqueeze(-1) * torch.exp(-math.log(base) / width * even)


def exact(index: Tensor) -> Tensor:
    """Positions in float64 (float32 on MPS): float32 angles at 10,000 have lost three digits."""
    return index.to(torch.float32 if index.device.type == "mps" else torch.float64)


def sinusoidal_init(extent: int, width: int) -> Tensor:
    """Sinusoids of positions 0..extent-1 with a mean square of 1: [extent, width].

    As in Vaswani et al. 2017, 3.5, with wavelengths from four positions to twice the extent.
    """
    n = -(-width // 2)
    frequency = torch.logspace(math.log2(math.pi / extent), math.log2(math.pi / 2), n, base=2.0)
    angle = torch.arange(extent).unsqueeze(-1) * frequency  # [extent, n]
    return interleave(angle)[:, :width] * math.sqrt(2)


def interleave(angle: Tensor) -> Tensor:
    """Sine and cosine of each angle in turn: [..., n] -> [..., 2 n]."""
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)
