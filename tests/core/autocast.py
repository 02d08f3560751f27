"""What kernels with a backward pass of their own give within autocast."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def assert_autocast_changes_nothing(
    compute: Callable[[], list[Tensor]], dtype: torch.dtype
) -> None:
    """compute: outputs and gradients, all in `dtype`, of the same inputs at each call."""
    wanted = compute()
    with torch.autocast("cpu", torch.bfloat16):
        seen = compute()
    for one, other in zip(seen, wanted, strict=True):
        assert one.dtype == dtype
        assert torch.equal(one, other)
