"""The linear map, by the faster of two libraries on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.processor import has_matrix_units, has_wide_vectors

FEWEST_PRODUCTS = 2**25
"""Multiplications from which the way through oneDNN pays for the turn of its inputs."""


class Linear(nn.Linear):
    """y = x W^T + b over the last axis: [..., D] -> [..., out]."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., D], weight [out, D], bias [out] -> [..., out]; the same as `F.linear`.

    In float32 PyTorch gives matrix products to MKL, which leaves half of an AMD processor unused.
    Convolutions go to oneDNN, and a convolution of width 1 is a linear map. Forward and backward in
    GFLOP/s on two cores with AVX-512 and without AMX, through MKL and oneDNN: 1024 rows, 512 to
    2048, 185 and 322; 2048 to 512, 183 and 300; 1536 rows, 256 to 1024, 183 and 371; 64 rows, 128
    to 512, 113 and 98. Where AMX says that the processor is Intel's, MKL is left alone: 270 to 340.
    """
    products = x.numel() * weight.shape[0]
    if products < FEWEST_PRODUCTS or not _through_convolution(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(1, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)  # [1, D, rows, 1], channels last
    y = F.conv2d(rows, weight[:, :, None, None], bias)  # [1, out, rows, 1]
    return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])  # [..., out]


def _through_convolution(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and has_wide_vectors()
        and not has_matrix_units()
        and torch.backends.mkldnn.is_available()
        and not torch.is_autocast_enabled("cpu")
    )
