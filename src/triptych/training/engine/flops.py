"""Operations of a training step, and the peak of a GPU: model FLOPs utilisation (MFU)."""

from __future__ import annotations

from collections.abc import Iterator

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


def attention_flops(model: nn.Module, length: int) -> float:
    """Return the operations of attention per position in a training step, projections excluded.

    Products of queries with keys and of weights with values, over the visible pairs of sequences of
    `length` positions: 12 times the width times the mean number of keys a query sees (Chowdhery et
    al. 2022, appendix B). A layer that is applied several times counts as often.
    """
    keys_of: dict[int, float] = {}
    total = 0.0
    for layer, times in with_repeats(model):
        if isinstance(layer, MultiHeadAttention):
            pattern = layer.mask_pattern
            if id(pattern) not in keys_of:
                keys_of[id(pattern)] = pattern.visible_pairs(length) / length
            total += times * 12 * layer.n_heads * layer.d_head * keys_of[id(pattern)]
    return total


def with_repeats(model: nn.Module) -> Iterator[tuple[nn.Module, int]]:
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
