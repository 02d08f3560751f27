"""Setting of a benchmark run: device, scale, and what the machine offers."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeVar

import torch

Sizes = TypeVar("Sizes")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SECONDS = {"full": 40.0, "quick": 8.0, "tiny": 0.0}
"""Time for the rounds of one table, after which no new round begins."""


@dataclass(frozen=True)
class Setting:
    """What every section gets."""

    device: torch.device
    scale: Literal["full", "quick", "tiny"]

    def sizes(self, tiny: Sizes, quick: Sizes, full: Sizes) -> Sizes:
        return {"tiny": tiny, "quick": quick, "full": full}[self.scale]

    @property
    def without_bf16(self) -> str:
        """Reason to skip bf16, or an empty string."""
        return "" if self.scale == "tiny" or has_bf16(self.device) else "no bf16 hardware"

    @property
    def without_int8(self) -> str:
        """Reason to skip dynamic int8, or an empty string."""
        return "" if self.device.type == "cpu" else "dynamic int8 runs on a CPU"

    @property
    def dtypes(self) -> list[str]:
        """fp32, and bf16 where the device has hardware for it."""
        return ["fp32"] if self.without_bf16 else ["fp32", "bf16"]


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies matrices in bfloat16 by hardware; False where unknown."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(cpu_field("flags", "Features").split()))


def cpu_field(*names: str) -> str:
    """A field of /proc/cpuinfo; empty where there is none."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


def missing(module: str) -> str:
    """Reason to skip what needs this module, or an empty string."""
    return "" if find_spec(module) else f"{module} is not installed"
