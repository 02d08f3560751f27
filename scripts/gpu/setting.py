"""What every section of `scripts/gpu_check` gets, and how it measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

Row = dict[str, Any]
"""A row of a section's table: figures by column."""


@dataclass(frozen=True)
class Setting:
    """Device and sizes of a check."""

    device: torch.device
    tiny: bool = False
    """Sizes that show that everything runs, on any device."""

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

    def autocast(self, enabled: bool = True) -> torch.autocast:
        """bf16 as in training."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)
