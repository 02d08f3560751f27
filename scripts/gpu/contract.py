"""Section 1: every attention variant on the device against its definition on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor

from gpu.attention_cases import EXAMPLES, Example, context, layer_of, length_of, name, step
from gpu.setting import Row, Setting
from triptych.core.attention.multihead import MultiHeadAttention

WIDTH, HEADS, BATCH = 64, 2, 2
"""Heads of 32 features; FlexAttention needs 16."""
TOLERANCE = {"fp32": 5e-3, "bf16": 6e-2}
"""Largest difference between values of size 1; TF32 rounds the products of fp32."""


def contract(setting: Setting) -> Iterator[Row]:
    """Largest differences from the definition in float64: forward, gradients, steps, no key."""
    examples = EXAMPLES[:: len(EXAMPLES) // 4] if setting.tiny else EXAMPLES
    for dtype in ("fp32", "bf16"):
        for example in examples:
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


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest absolute difference, over the largest value where that is above 1."""
    size = max(1.0, float(expected.abs().max()))
    return float((found.detach().cpu().double() - expected.detach()).abs().max()) / size
