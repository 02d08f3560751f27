"""Kernel launches of a pass and of a step, on fake CUDA tensors; the laws are in tests/gpu."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from gpu.attention_cases import EXAMPLES, Example, context, layer_of, length_of, name, token_ids
from gpu.fake_cuda import fake_cuda
from gpu.setting import Row

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEADS = 64, 2
"""Heads of 32 features; FlexAttention needs 16."""


def laws() -> bool:
    """Whether the tests on fake CUDA tensors pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "not slow", "tests/gpu"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


@torch.no_grad()
def launches() -> Iterator[Row]:
    """Kernel launches of each attention variant: of a layer's pass and of its decoding step."""
    for example in EXAMPLES:
        yield {"case": name(example), **count(example)}


def count(example: Example) -> Row:
    layer = layer_of(example.config, WIDTH, HEADS, example.shape, example.causal)
    with fake_cuda(layer) as counted:
        x = torch.zeros(2, length_of(example), WIDTH, device="cuda")
        now = context(x)
        layer(x, now)  # makes what is cached, such as the block mask
        counted.by_name.clear()
        layer(x, now)
        row: Row = {"pass": counted.count}
        if example.causal:
            cache = layer.init_cache(2, length_of(example))
            step = layer.step_context(torch.full((1,), 3, device="cuda"), cache)
            step = replace(step, token_ids=token_ids(x[:, 3:4]))
            counted.by_name.clear()
            layer.step(x[:, 3:4], cache, step)
            row["step"] = counted.count
    return row
