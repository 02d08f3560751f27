"""What every section of `scripts/gpu_check` gets, and how it measures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

Row = dict[str, Any]
"""A row of a section's table: figures by column."""
TOLERANCE = {"fp32": 1e-4, "bf16": 6e-2}
"""Largest difference between values of size 1. Products rounded to TF32 differ by 1e-3."""


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest absolute difference over the largest value where that is above 1; NaN as infinity."""
    size = max(1.0, float(expected.detach().abs().max()))
    largest = (found.detach().cpu().double() - expected.detach().cpu().double()).abs().max()
    return float(largest.nan_to_num(torch.inf)) / size


@dataclass(frozen=True)
class Setting:
    """Device and sizes of a check."""

    device: torch.device
    tiny: bool = False
    """Sizes that show that everything runs, on any device."""
    every: bool = False
    """All cases of the contract, not some that stand for them."""

    @property
    def on_cuda(self) -> bool:
        return self.device.type == "cuda"

    def synchronize(self) -> None:
        if self.on_cuda:
            torch.cuda.synchronize()

    def seconds(self, call: Callable[[], object], repeats: int) -> float:
        """Mean seconds of a call, after one that is not counted."""
        call()
        self.synchronize()
        started = time.perf_counter()
        for _ in range(repeats):
            call()
        self.synchronize()
        return (time.perf_counter() - started) / repeats

    def peak_gib(self) -> float | None:
        """Largest memory of tensors since `reset_peak`, in GiB; None except on CUDA."""
        return torch.cuda.max_memory_allocated() / 2**30 if self.on_cuda else None

    def reset_peak(self) -> None:
        if self.on_cuda:
            torch.cuda.reset_peak_memory_stats()

    @contextmanager
    def no_waits(self) -> Iterator[None]:
        """Raise where the host waits for CUDA; without effect on other devices."""
        if not self.on_cuda:
            yield
            return
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    @contextmanager
    def strict(self) -> Iterator[None]:
        """Raise where compiled code gives way to code as it is written."""
        with (
            torch._dynamo.config.patch(fail_on_recompile_limit_hit=True),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("error", "flex_attention called without torch.compile")
            yield

    def autocast(self, enabled: bool = True) -> torch.autocast:
        """bf16 as in training."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)
