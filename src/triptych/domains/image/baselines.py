"""What costs nothing to know: the figures that stand beside a model's bits per dimension."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_PICTURES_AT_ONCE = 2048
"""so that counting never holds a large set as 64-bit numbers"""


def uniform_bits_per_dim(levels: int) -> float:
    """Bits per sub-pixel of a model that holds every level equally likely: log2(levels)."""
    return math.log2(levels)


def histogram_bits_per_dim(train: Tensor, held_out: Tensor, levels: int) -> float:
    """Bits per sub-pixel of a count per place and level, with one added to every count.

    train, held_out: uint8 [N, H, W, C] and [M, H, W, C]. It knows how bright each place tends to
    be and nothing of its neighbours, so a model that beats it has learned how pixels hang together.
    """
    places = held_out.shape[1:].numel()
    offset = torch.arange(places) * levels
    counts = torch.ones(places * levels, dtype=torch.float64)
    for part in train.split(_PICTURES_AT_ONCE):
        cells = (part.reshape(len(part), places).long() + offset).reshape(-1)  # [n * HWC]
        counts += torch.bincount(cells, minlength=places * levels)
    bits = -(counts / (len(train) + levels)).log2()
    total = sum(
        bits[part.reshape(len(part), places).long() + offset].sum().item()
        for part in held_out.split(_PICTURES_AT_ONCE)
    )
    return total / held_out.numel()
