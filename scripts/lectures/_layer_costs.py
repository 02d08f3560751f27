"""Kinds of layers that mix positions, and their costs (Vaswani et al. 2017, table 1).

All layers are causal, map [B, L, D] to [B, L, D] and are the ones that models of this project use
or their equals in torch.nn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from triptych.core.attention.mask import COUNTED_TOGETHER, MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.models.recurrent import CellKind, recurrent_layers
from triptych.core.state import ForwardContext
from triptych.training.engine.speed import attention_flops


@dataclass(frozen=True)
class LayerKind:
    """A layer and what it costs; its weights do not matter."""

    layer: nn.Module
    width: int
    """Features of an input and of an output."""
    flops: Callable[[int], int]
    """Operations of the forward pass over one sequence of so many positions."""
    longest_path: Callable[[int], int]
    """Layers, or steps of a recurrent layer, between the first of so many inputs and the last
    output."""
    order: str = ""
    """Operations by length n and width d, as in table 1; empty for none."""
    one_by_one: bool = False
    """Whether the operations of a position wait for those of the position before."""

    def run(self, x: Tensor) -> Tensor:
        """Return the output of the layer: x [B, L, D] -> [B, L, D]."""
        if isinstance(self.layer, MultiHeadAttention):
            tokens = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)  # [B, L]
            context = ForwardContext(token_ids=tokens if self.layer.uses_token_ids else None)
            attended: Tensor = self.layer(x, context)
            return attended
        y = self.layer(x)
        output: Tensor = y[0] if self.one_by_one else y  # a recurrent layer returns its state too
        return output


def attention(layer: MultiHeadAttention, order: str = "") -> LayerKind:
    """Return self-attention under the mask pattern of a layer.

    The operations are those of the projections and of the visible pairs; those of a relative bias
    and of the compression of keys are left out.
    """
    width = layer.n_heads * layer.d_head

    def flops(length: int) -> int:
        return 8 * length * width**2 + attention_flops(layer, length)

    return LayerKind(layer, width, flops, partial(path_length, layer.mask_pattern), order)


def recurrent(cell: CellKind, width: int) -> LayerKind:
    """Return one recurrent layer of torch.nn, whose state has the width of the input."""
    layer = recurrent_layers(cell, width, width, 1, 0.0)
    matrices = [w for name, w in layer.named_parameters() if name.startswith("weight")]
    n_weights = sum(matrix.numel() for matrix in matrices)

    def flops(n_positions: int) -> int:
        return 2 * n_positions * n_weights

    steps = int  # as many as positions
    return LayerKind(layer, width, flops, steps, "n d^2", one_by_one=True)


def convolution(width: int, kernel: int) -> LayerKind:
    """Return a causal convolution with a contiguous kernel of at least 2 positions."""

    def longest_path(length: int) -> int:
        return max(1, -(-(length - 1) // (kernel - 1)))

    layer = CausalConvolution(width, kernel)
    return LayerKind(layer, width, lambda n: 2 * kernel * n * width**2, longest_path, "k n d^2")


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


UNREACHABLE = 2**31
"""Path length where no number of layers connects two positions."""


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
