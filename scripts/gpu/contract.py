"""Section 1: every attention variant on the device against its definition on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor

from gpu.attention_cases import EXAMPLES, Example, context, layer_of, length_of, name, step
from gpu.setting import TOLERANCE, Row, Setting, difference
from triptych.core.attention.multihead import MultiHeadAttention

WIDTH, HEADS, BATCH = 64, 2, 2
"""Heads of 32 features; FlexAttention needs 16."""
SOME = (
    "Full()-13", "Local1D(block=4, memory=6)", "Local2D(block_height=2, block_width=3",
    "RelativeLocal(block=4)-15", "Relative(max_distance=5, window=None)-13", "PitchTime(",
    "Compressed(stride=4", "WithRotary(inner=Relative(",
)  # fmt: skip
"""Beginnings of the names of cases of which the first one stands for a variant; the last is two
variants in one."""


def contract(setting: Setting) -> Iterator[Row]:
    """Largest differences from the definition in float64: forward, gradients, steps, no key."""
    chosen = [next(e for e in EXAMPLES if name(e).startswith(start)) for start in SOME]
    for dtype in ("fp32", "bf16"):
        for example in EXAMPLES if setting.every else chosen[::3] if setting.tiny else chosen:
            with setting.strict():
                differences = compare(setting, example, bf16=dtype == "bf16")
            passed = max(differences.values()) <= TOLERANCE[dtype]
            yield {"case": name(example), "dtype": dtype, **differences, "passed": passed}


def compare(setting: Setting, example: Example, *, bf16: bool) -> dict[str, float]:
    torch.manual_seed(0)
    layer = layer_of(example.config, WIDTH, HEADS, example.shape, example.causal)
    exact, layer = deepcopy(layer).double(), layer.to(setting.device)
    x = torch.randn(BATCH, length_of(example), WIDTH, dtype=torch.float64)
    moved = x.float().to(setting.device)
    expected, expected_gradient = gradient(exact, x, reference=True)
    with setting.autocast(bf16):
        found, found_gradient = gradient(layer, moved)
    differences = {
        "forward": difference(found, expected),
        "gradient": difference(found_gradient, expected_gradient),
    }
    if example.causal:
        with setting.autocast(bf16), torch.no_grad():
            differences["steps"] = difference(steps(layer, moved), expected)
    padding = torch.ones(x.shape[:2], dtype=torch.bool)  # no query has a key
    with torch.no_grad():
        empty = exact.reference(x, context(x, padding))
        with setting.autocast(bf16):
            found = layer(moved, context(moved, padding.to(setting.device)))
    return differences | {"no key": difference(found, empty)}


def gradient(
    layer: MultiHeadAttention, x: Tensor, *, reference: bool = False
) -> tuple[Tensor, Tensor]:
    """The output, and the gradient of its sum of squares."""
    x = x.detach().requires_grad_()
    y = layer.reference(x, context(x)) if reference else layer(x, context(x))
    y.double().square().sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


def steps(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    cache = layer.init_cache(len(x), x.shape[1])
    positions = torch.arange(x.shape[1], device=x.device)
    parts = [step(layer, x[:, t : t + 1], positions[t : t + 1], cache) for t in range(len(x[0]))]
    return torch.cat(parts, dim=1)
