"""Dropout of features; on a CPU from fewer random numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 2**16
"""On a CPU a feature is kept by one random number of 16 bits: shares are multiples of 1/65536."""


class Dropout(nn.Module):
    """Zero a share of the features in training and scale the rest (Srivastava et al. 2014).

    PyTorch draws a number of 53 bits for each feature on a CPU, one after another: a tenth of a
    training step. With four features from one draw of 64 bits half a million take 0.6 ms instead
    of 3.4 to 4.3 (two cores). Elsewhere it is `F.dropout`.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        return x * kept(x, self.share)

    def extra_repr(self) -> str:
        return f"share={self.share}"


def kept(like: Tensor, share: float) -> Tensor:
    """0 where a feature is dropped, 1 / (1 - share) elsewhere: of the form of `like`."""
    n = like.numel()
    numbers = random_bytes(2 * n, like.device).view(torch.int16)[:n].view(like.shape)
    dropped = round(share * LEVELS)
    # 0 or 1 in their place: to compare into booleans takes three times as long.
    keep = numbers.ge_(dropped - LEVELS // 2)
    return keep.to(like.dtype).mul_(LEVELS / (LEVELS - dropped))


def random_bytes(n: int, device: torch.device) -> Tensor:
    """At least n random bytes from the generator of the device, uint8, 8 from each draw."""
    lowest, draws = -(2**63), -(-n // 8)
    if torch.compiler.is_compiling():
        # What a compiler can follow; it divides, and takes twice as long.
        numbers = torch.randint(lowest, -lowest - 1, (draws,), dtype=torch.int64, device=device)
    else:
        numbers = torch.empty(draws, dtype=torch.int64, device=device).random_(lowest, None)
    return numbers.view(torch.uint8)
