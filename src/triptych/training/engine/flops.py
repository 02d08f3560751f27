"""Operations, counted by formulas, and the peaks of GPUs.

An operation is a multiplication or an addition, so that a product of an a x b and a b x c matrix
has 2abc.
"""

from __future__ import annotations

from torch import nn

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


def attention_flops(layer: MultiHeadAttention, length: int) -> int:
    """Return the operations of a layer over the visible pairs of a sequence, projections excluded.

    Products of queries with keys, and of weights with values, in the forward pass; a training step
    has three times as many.
    """
    return 4 * layer.n_heads * layer.d_head * layer.mask_pattern.visible_pairs(length)


def training_flops(model: nn.Module, length: int = 0) -> float:
    """Return the operations of a training step per target: of the parameters and of attention.

    Each parameter takes 2 in the forward pass and 2 for the gradient of its input; one that is
    trained takes 2 more for its own gradient (Chowdhery et al. 2022, appendix B). A layer that is
    applied several times counts as often. length: of the sequences; 0 leaves attention out.
    """
    repeats = {  # of the blocks of a stack, which may be fewer than its layers
        part: stack.n_layers // len(stack.blocks)
        for stack in model.modules()
        if isinstance(stack, Stack)
        for block in stack.blocks
        for part in block.modules()
    }
    uses: dict[nn.Parameter, int] = {}  # a weight that two modules share counts once
    by_pattern: dict[tuple[nn.Module, int], int] = {}  # layers of a stack share the pattern
    attention = 0
    for part in model.modules():
        times = repeats.get(part, 1)
        uses |= dict.fromkeys(part.parameters(recurse=False), times)
        if length and isinstance(part, MultiHeadAttention):
            key = part.mask_pattern, part.n_heads * part.d_head
            if key not in by_pattern:
                by_pattern[key] = attention_flops(part, length)
            attention += 3 * times * by_pattern[key]
    per_target = sum(n * p.numel() * (6 if p.requires_grad else 4) for p, n in uses.items())
    return per_target + (attention / length if length else 0.0)
