"""Kinds of layers that mix positions, and their costs (Vaswani et al. 2017, table 1).

All layers are causal, map [B, L, D] to [B, L, D] and are the ones that models of this project use
or their equals in torch.nn.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.mask import COUNTED_TOGETHER, MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.models.recurrent import CellKind, recurrent_layers
from triptych.core.state import ForwardContext
from triptych.training.engine.speed import attention_flops


class LayerKind(ABC):
    """A kind of layer of a given width."""

    width: int
    """Features of an input and of an output."""
    order: str
    """Operations by length n and width d, as in table 1; empty for none."""

    def run(self, layer: nn.Module, x: Tensor) -> Tensor:
        """Return the output of a layer that `build` returned: x [B, L, D] -> [B, L, D]."""
        y: Tensor = layer(x)
        return y

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a layer of this kind; its weights do not matter."""

    @abstractmethod
    def flops(self, length: int) -> int:
        """Operations of the forward pass over one sequence of `length` positions."""

    @abstractmethod
    def longest_path(self, length: int) -> int:
        """Layers, or steps of a recurrent layer, between the first input and the last output."""

    def sequential_operations(self, length: int) -> int:
        """Operations of the forward pass that wait for one another, a layer's own depth aside."""
        return 1


def recurrent_flops(layer: nn.RNNBase, n_positions: int) -> int:
    """Return the operations of the products with all matrices of a layer in the forward pass."""
    matrices = [w for name, w in layer.named_parameters() if name.startswith("weight")]
    return 2 * n_positions * sum(matrix.numel() for matrix in matrices)


@dataclass(frozen=True)
class Attention(LayerKind):
    """Self-attention under a mask pattern.

    The operations are those of the projections and of the visible pairs; those of a relative bias
    and of the compression of keys are left out.
    """

    width: int
    layer: MultiHeadAttention
    order: str = ""

    def build(self) -> nn.Module:
        return self.layer

    def run(self, layer: nn.Module, x: Tensor) -> Tensor:
        tokens = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)  # [B, L]
        y: Tensor = layer(
            x, ForwardContext(token_ids=tokens if self.layer.uses_token_ids else None)
        )
        return y

    def flops(self, length: int) -> int:
        return 8 * length * self.width**2 + attention_flops(self.layer, length)

    def longest_path(self, length: int) -> int:
        return path_length(self.layer.mask_pattern, length)


@dataclass(frozen=True)
class Recurrent(LayerKind):
    """One recurrent layer of torch.nn, whose state has the width of the input."""

    cell: CellKind
    width: int
    order: str = "n d^2"

    def build(self) -> nn.RNNBase:
        return recurrent_layers(self.cell, self.width, self.width, 1, 0.0)

    def run(self, layer: nn.Module, x: Tensor) -> Tensor:
        states: Tensor = layer(x)[0]  # [B, L, D]
        return states

    def flops(self, length: int) -> int:
        return recurrent_flops(self.build(), length)

    def sequential_operations(self, length: int) -> int:
        return length

    def longest_path(self, length: int) -> int:
        return length


class CausalConvolution(nn.Module):
    """Convolution over positions that reads a position and the kernel - 1 before it."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.convolution = nn.Conv1d(width, width, kernel)

    def forward(self, x: Tensor) -> Tensor:
        padded = nn.functional.pad(x.mT, (self.kernel - 1, 0))  # [B, D, L + kernel - 1]
        y: Tensor = self.convolution(padded)  # [B, D, L]
        return y.mT  # [B, L, D]


@dataclass(frozen=True)
class Convolution(LayerKind):
    """Causal convolution with a contiguous kernel."""

    width: int
    kernel: int
    order: str = "k n d^2"

    def build(self) -> nn.Module:
        return CausalConvolution(self.width, self.kernel)

    def flops(self, length: int) -> int:
        return 2 * self.kernel * length * self.width**2

    def longest_path(self, length: int) -> int:
        if self.kernel == 1:
            return 1 if length == 1 else UNREACHABLE
        return max(1, -(-(length - 1) // (self.kernel - 1)))


UNREACHABLE = 2**31
"""Path length where no number of layers connects two positions."""


def layer_kinds(
    width: int, n_heads: int, *, window: int, kernel: int, length: int
) -> dict[str, LayerKind]:
    """The kinds of table 1 at one width, by name.

    window: largest number of positions that a query of local attention reads, half of them in its
    own block, at least 2. length: of the longest sequence. Raises ValueError for heads that do not
    divide the width.
    """
    local = Local1D(block=window // 2, memory=window - window // 2)
    full, restricted = (
        variant.build(width, n_heads, variant.mask_pattern((length,), True))
        for variant in (Full(), local)
    )
    return {
        "self-attention": Attention(width, full, "n^2 d"),
        f"local attention, r {window}": Attention(width, restricted, "r n d"),
        "LSTM": Recurrent("lstm", width),
        "GRU": Recurrent("gru", width),
        f"convolution, k {kernel}": Convolution(width, kernel),
    }


def path_length(pattern: MaskPattern, length: int) -> int:
    """Return the layers of attention after which the last position depends on the first, from 1.

    Found backwards from the last position: each layer adds the keys that the positions found so far
    see. UNREACHABLE where no number of layers is enough.
    """
    positions = torch.arange(length)
    reached = positions == length - 1  # [L]
    newest = positions[reached]
    for layer in range(1, length + 1):
        seen = torch.zeros_like(reached)
        for queries in newest.unsqueeze(1).split(COUNTED_TOGETHER):
            seen |= pattern.visible(queries, positions).any(0)
        if bool(seen[0]):
            return layer
        newest = positions[seen & ~reached]
        reached |= seen
        if not len(newest):
            break
    return UNREACHABLE
