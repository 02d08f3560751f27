"""Operations, counted by formulas and as measured, and the peaks of GPUs.

An operation is a multiplication or an addition, so that a product of an a x b and a b x c matrix
has 2abc.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.flop_counter import FlopCounterMode

from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.transformer import Stack

# NVIDIA's documents state most peaks with sparsity, which is twice the dense peak:
# B200: NVIDIA Blackwell Architecture Technical Brief, table of HGX B200.
# H200: H200 datasheet, https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446
# H100 SXM and PCIe: H100 datasheet, https://resources.nvidia.com/en-us-tensor-core
# L40S: L40S datasheet. L4: Ada architecture whitepaper v2.1,
# https://images.nvidia.com/aem-dam/Solutions/Data-Center/l4/nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf
# A100: A100 datasheet, nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf on www.nvidia.com
PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A100": 312e12,
}
"""Dense bf16 operations per second by a part of the device's name."""


def peak_flops(device_name: str) -> float | None:
    """Return the dense bf16 operations per second of a GPU; None where they are not known."""
    words = device_name.replace("-", " ")
    return next((peak for name, peak in PEAKS.items() if f" {name} " in f" {words} "), None)


def sdpa_flops(q: torch.Size, k: torch.Size, v: torch.Size, *_: Any, **__: Any) -> int:
    """Return the operations of attention [..., Q, E], [..., K, E], [..., K, V] over all pairs.

    Products of queries with keys, and of weights with values.
    """
    return 2 * q[:-1].numel() * k[-2] * (k[-1] + v[-1])


def attention_flops(layer: MultiHeadAttention, length: int) -> int:
    """Return the operations of a layer over the visible pairs of a sequence, projections excluded.

    Those of the forward pass, as in `sdpa_flops`; a training step has three times as many.
    """
    return 4 * layer.n_heads * layer.d_head * layer.mask_pattern.visible_pairs(length)


def recurrent_flops(layer: nn.RNNBase, n_positions: int) -> int:
    """Return the operations of the products with all matrices of a layer in the forward pass."""
    matrices = [w for name, w in layer.named_parameters() if name.startswith("weight")]
    return 2 * n_positions * sum(matrix.numel() for matrix in matrices)


def training_flops(model: nn.Module, length: int = 0) -> float:
    """Return the operations of a training step per target: of the parameters and of attention.

    Each parameter takes 2 in the forward pass and 2 for the gradient of its input; one that is
    trained takes 2 more for its own gradient (Chowdhery et al. 2022, appendix B). A layer that is
    applied several times counts as often. length: of the sequences; 0 leaves attention out.
    """
    uses: dict[nn.Parameter, int] = {}  # a weight that two modules share counts once
    by_pattern: dict[tuple[nn.Module, int], int] = {}  # layers of a stack share the pattern
    attention = 0
    for part, times in _with_repeats(model):
        uses |= dict.fromkeys(part.parameters(recurse=False), times)
        if length and isinstance(part, MultiHeadAttention):
            key = part.mask_pattern, part.n_heads * part.d_head
            if key not in by_pattern:
                by_pattern[key] = attention_flops(part, length)
            attention += 3 * times * by_pattern[key]
    per_target = sum(n * p.numel() * (6 if p.requires_grad else 4) for p, n in uses.items())
    return per_target + (attention / length if length else 0.0)


def _with_repeats(model: nn.Module) -> Iterator[tuple[nn.Module, int]]:
    """Yield all modules of a model, and how often each is applied in one pass.

    The blocks of a stack are applied several times where it has fewer blocks than layers.
    """
    times = {
        part: stack.n_layers // len(stack.blocks)
        for stack in model.modules()
        if isinstance(stack, Stack)
        for block in stack.blocks
        for part in block.modules()
    }
    for part in model.modules():
        yield part, times.get(part, 1)


class FlopCounter(FlopCounterMode):
    """PyTorch's counter with the attention of CPUs and recurrent layers, which it misses.

    Attention counts as it is computed, pairs that its mask hides included where they are computed.
    """

    def __init__(self, model: nn.Module) -> None:
        # PyTorch's counter knows operations by these names alone; the public function has several.
        on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        super().__init__(display=False, custom_mapping={on_cpu: sdpa_flops})
        self._layers = [part for part in model.modules() if isinstance(part, nn.RNNBase)]
        self._recurrent = 0

    def __enter__(self) -> FlopCounter:
        self._hooks = [layer.register_forward_pre_hook(self._begin) for layer in self._layers]
        self._hooks += [layer.register_forward_hook(self._end) for layer in self._layers]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    @property
    def total(self) -> int:
        """Operations of the passes inside."""
        return int(self.get_total_flops()) + self._recurrent

    # Which operations of a recurrent layer PyTorch sees depends on the device, so they are taken
    # off again.

    def _begin(self, layer: nn.RNNBase, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        n_positions = len(x.data) if isinstance(x, PackedSequence) else x.shape[:2].numel()
        self._recurrent += recurrent_flops(layer, n_positions) + int(self.get_total_flops())

    def _end(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        self._recurrent -= int(self.get_total_flops())
