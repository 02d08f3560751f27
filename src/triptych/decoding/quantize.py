"""Reduced precision for decoding and scoring: bfloat16, and int8 matrices on a CPU."""

from __future__ import annotations

import copy
import warnings
from typing import TypeVar, get_args

import torch
from torch import nn

from triptych.errors import UserError
from triptych.types import Dtype

Model = TypeVar("Model", bound=nn.Module)


def quantize(model: Model, dtype: Dtype) -> Model:
    """Return the model in another precision, for use without gradients.

    fp32: the model itself. bf16: a copy with all parameters in bfloat16. int8: a copy whose
    nn.Linear layers hold weights as int8 with one scale per output; their inputs are quantized at
    each call, and everything else stays in float32. Heads compute likelihoods and distributions
    in float32 in all three. An int8 model cannot be compiled: its layers are opaque to
    torch.compile.
    Raises UserError for an unknown dtype, and for int8 on a device other than a CPU or where this
    PyTorch has no dynamic quantization.
    """
    device = next(model.parameters()).device
    if dtype not in get_args(Dtype):
        raise UserError(f"dtype is {', '.join(get_args(Dtype))}, got {dtype}")
    if dtype == "int8" and device.type != "cpu":
        raise UserError(f"dtype int8 needs a CPU; this model is on {device}")
    if dtype == "fp32":
        return model
    reduced = copy.deepcopy(model).eval().requires_grad_(False)
    if dtype == "bf16":
        return reduced.to(torch.bfloat16)
    # torch.ao is deprecated in favour of torchao, whose int8 layers need torch.compile to be
    # faster than float32 on a CPU (pytorch/ao#4365).
    try:
        from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic
    except ImportError as error:
        raise UserError(f"dtype int8 needs torch.ao.quantization: {error}") from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.ao.quantization is deprecated.*")
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*")
        quantize_dynamic(reduced, {nn.Linear: per_channel_dynamic_qconfig}, inplace=True)
    return reduced
