"""What the processor can do, where the fastest kernel depends on it."""

from __future__ import annotations

from functools import cache

import torch


@cache
def has_matrix_units() -> bool:
    """Whether the processor multiplies tiles of bfloat16 in hardware (AMX)."""
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)  # private: it may go
    return bool(ask()) if ask is not None else False


@cache
def has_wide_vectors() -> bool:
    """Whether PyTorch uses vectors of 512 bits here (AVX-512)."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"
