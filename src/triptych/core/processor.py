"""What the processor can do, where the fastest kernel depends on it.

Asked once, when this is imported: torch.compile can follow neither the question nor a cache.
"""

from __future__ import annotations

import torch


def _ask_for_matrix_units() -> bool:
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)  # private: it may go
    return bool(ask()) if ask is not None else False


_MATRIX_UNITS = _ask_for_matrix_units()
_WIDE_VECTORS = torch.backends.cpu.get_cpu_capability() == "AVX512"


def has_matrix_units() -> bool:
    """Whether the processor multiplies tiles of bfloat16 in hardware (AMX)."""
    return _MATRIX_UNITS


def has_wide_vectors() -> bool:
    """Whether PyTorch uses vectors of 512 bits here (AVX-512)."""
    return _WIDE_VECTORS
