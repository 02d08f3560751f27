"""Position codes: modules that turn an index into a vector."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from triptych.core.generation_order import GenerationOrder


class Sinusoid(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos (Vaswani et al. 2017, 3.5).

    Defined for any position. forward: index int64 [...] -> [..., D].
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"sinusoids need an even width, got {d_model}")
        self.d_model = d_model
        # Follows the module's dtype and device, as weights would.
        self.register_buffer("like", torch.zeros(()), persistent=False)

    like: Tensor

    def forward(self, index: Tensor) -> Tensor:
        # Angles in double precision whatever the model's dtype: at position 10,000 a float32
        # angle has lost three digits. Apple's GPU knows no float64.
        exact = torch.float32 if index.device.type == "mps" else torch.float64
        even = torch.arange(0, self.d_model, 2, dtype=exact, device=index.device)
        frequency = torch.exp(-math.log(10000.0) / self.d_model * even)  # [D / 2]
        angle = index.unsqueeze(-1) * frequency  # [..., D / 2]
        code = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # [..., D]
        return code.to(self.like.dtype)


class Learned(nn.Module):
    """A learned vector per position, up to a longest one.

    forward: index int64 [...] -> [..., D]. IndexError beyond the longest position.
    """

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_length, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    def forward(self, index: Tensor) -> Tensor:
        vectors: Tensor = self.table(index)
        return vectors


class Grid(nn.Module):
    """Half of the width encodes a step's row, the other half its column and channel.

    Learned tables (Parmar et al. 2018, section 3.1; there the column and the channel share one
    index, here they have a table each and are added). Rows and columns start as `waves`: each place
    is like its neighbours, and one rotation leads from any place to the next. After 200 batches of
    8 MNIST pictures (4 layers, width 128, Muon, a softmax) 1.26 bits per dim on validation, 1.25
    with waves twice as large; from independent vectors of standard deviation 1 it was 1.28, of
    D^-0.5 1.31. On CIFAR pictures (10 logistics; both from `level_table`) 5.28 at that point, 5.32
    twice as large, and 5.21 from independent vectors of D^-0.5. forward: index int64 [...] ->
    [..., D].
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
                table.weight.copy_(0.5 * waves(*table.weight.shape))
        self.register_buffer("coordinates", order.coordinates, persistent=False)

    coordinates: Tensor

    def forward(self, index: Tensor) -> Tensor:
        row, column, channel = self.coordinates[index].unbind(-1)  # 3 x [...]
        side = self.column(column) + self.channel(channel)
        return torch.cat([self.row(row), side], dim=-1)  # [..., D]


def waves(extent: int, width: int) -> Tensor:
    """Sinusoids over the places 0..extent-1, their squares 1 in the mean: [extent, width].

    As in Vaswani et al. 2017, section 3.5, but with wavelengths from four places to twice the
    extent, beyond which they would tell nothing apart.
    """
    n = -(-width // 2)
    frequency = torch.logspace(math.log2(math.pi / extent), math.log2(math.pi / 2), n, base=2.0)
    angle = torch.arange(extent).unsqueeze(-1) * frequency  # [extent, n]
    both = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # [extent, 2 n]
    return both[:, :width] * math.sqrt(2)


class Cycles(nn.Module):
    """Learned vectors of (index // divide) % modulo, added over the given cycles.

    For serialised voices: (1, 4) tells the voice of a token, (4, 16) the 16th in the bar of four
    voices. forward: index int64 [...] -> [..., D].
    """

    def __init__(self, d_model: int, cycles: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        if not cycles or any(divide < 1 or modulo < 1 for divide, modulo in cycles):
            raise ValueError(f"cycles are pairs (divide, modulo) of at least 1, got {cycles}")
        self.cycles = tuple(cycles)
        self.tables = nn.ModuleList(nn.Embedding(modulo, d_model) for _, modulo in cycles)
        for table in self.tables:
            nn.init.normal_(table.weight, std=d_model**-0.5)  # type: ignore[arg-type]

    def forward(self, index: Tensor) -> Tensor:
        vectors = [
            table(index // divide % modulo)
            for (divide, modulo), table in zip(self.cycles, self.tables, strict=True)
        ]
        return torch.stack(vectors).sum(0)  # [..., D]


class NoPosition(nn.Module):
    """No position code: for attention that knows distances itself, as relative attention does."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.register_buffer("zeros", torch.zeros(d_model), persistent=False)

    zeros: Tensor

    def forward(self, index: Tensor) -> Tensor:
        return self.zeros.expand(*index.shape, -1)  # [..., D]


class Sum(nn.Module):
    """Several position codes, added."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, index: Tensor) -> Tensor:
        return torch.stack([part(index) for part in self.parts]).sum(0)  # [..., D]
