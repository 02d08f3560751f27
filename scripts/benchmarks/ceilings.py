"""The machine's own limits, measured in the same run: a large product and a long read."""

from __future__ import annotations

import statistics

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measuring import Run, timed
from benchmarks.setting import DTYPES, Ceilings

SIZES = {"cpu": (1024, 75), "cuda": (8192, 1024)}
"""Extent of the square product and MB that are read; on a CPU the weights of the decoding model."""


def measure_ceilings(device: torch.device, *, tiny: bool = False) -> Ceilings:
    """Medians of several timings each, after a first call that does not count.

    A product goes both ways that PyTorch has, as a product and as a convolution of width 1, which
    on a CPU lie in different libraries; the faster one is the ceiling.
    """
    extent, megabytes = (64, 1) if tiny else SIZES[device.type]
    flops = {}
    for name, dtype in DTYPES.items():
        a, b = (torch.randn(extent, extent, device=device).to(dtype) for _ in range(2))
        ways = [lambda a=a, b=b: a @ b, lambda a=a, b=b: convolution(a, b)]
        if device.type == "cuda":
            ways.pop()
        flops[name] = max(2 * extent**3 / _median(way, device) for way in ways)
    buffer = torch.ones(megabytes * 10**6 // 4, device=device)
    return Ceilings(flops, 4 * buffer.numel() / _median(buffer.sum, device))


def convolution(rows: Tensor, weight: Tensor) -> Tensor:
    """The product rows [N, D] times weight^T [D, out] as a convolution: [1, out, N, 1]."""
    pixels = rows.view(1, -1, 1, rows.shape[-1]).permute(0, 3, 1, 2)  # [1, D, N, 1]
    return F.conv2d(pixels, weight[:, :, None, None])


def _median(run: Run, device: torch.device) -> float:
    run()
    once = timed(run, 1, device).seconds
    times = max(1, round(0.05 / max(once, 1e-6)))
    return statistics.median(timed(run, times, device).seconds for _ in range(7))
