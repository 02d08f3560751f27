"""What a section is told: where it runs, how large, how long, and what the machine can do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import torch

from benchmarks.measuring import Budget, Case, measure
from benchmarks.rows import Table

Scale = Literal["full", "quick", "tiny"]
Sizes = TypeVar("Sizes")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Ceilings:
    """What the machine reached in this run: the yardsticks for MFU and for decoding."""

    flops: dict[str, float]
    """Floating-point operations per second of one large product, by dtype."""
    bytes_per_s: float
    """Reading a buffer larger than the caches."""


@dataclass(frozen=True)
class Setting:
    """One run of the sections."""

    device: torch.device
    scale: Scale
    budget: Budget
    ceilings: Ceilings
    say: Callable[[str], None]
    checkpoint: str | None = None
    sentences: Path | None = None

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def sizes(self, by_scale: dict[str, Sizes]) -> Sizes:
        """The sizes of this scale; `gpu` in place of `full` where there is one."""
        if self.on_gpu and self.scale == "full" and "gpu" in by_scale:
            return by_scale["gpu"]
        return by_scale[self.scale]

    def measure(self, table: Table, cases: Sequence[Case], tables_left: int) -> Table:
        """Fill the table, saying so first; tables_left counts it."""
        self.say(table.title)
        return measure(table, cases, self.budget, tables_left, self.device)

    def autocast(self, dtype: str) -> contextlib.AbstractContextManager[object]:
        """Mixed precision for bf16, nothing for fp32."""
        if dtype == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()
