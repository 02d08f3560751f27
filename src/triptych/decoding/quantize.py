"""A model's matrices made ready for decoding: few rows, so that reading them is the cost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from triptych.core.attention.cross import CrossAttention
from triptych.core.layers import FeedForward
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.processor import has_matrix_units, has_wide_vectors
from triptych.decoding.lean import call_straight, join_activation
from triptych.decoding.matrices import Columns, Int8, Matrix, OneDNN, Plain, RowSum

Weights = Literal["fp32", "bf16", "int8"]

SMALL = {False: [(5 * 2**20, 32)], True: [(5 * 2**20, 65), (20 * 2**20, 16)]}
"""By whether there is AMX: pairs (bytes that a step reads in float32, rows). Below both of one the
matrices stay in the processor's cache between steps and F.linear is ahead of packed ones.

Without AMX width 128, 6 layers, 4.7 MB: 1.14 to 1.29 times with 1 to 16 rows, 0.84 times with 64;
width 256, 2 layers, 6.3 MB: 0.92 times with one row, 0.74 with 64. With AMX, 6 layers, time of
oneDNN over that of F.linear: width 128 1.7 with 8 rows, 1.2 with 32, 1.1 with 64; width 256 1.1
with 8 and 0.9 with 32; width 384 0.8 with 8. Not so `Columns`, ahead at every size that it serves.
"""
FEWEST_PACKED_ROWS = 8
"""Rows from which oneDNN is ahead of MKL in float32 on a processor with AMX, see `matrices`; it was
behind at 2 and as fast at 4."""
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2, "int8": 5e-2}
"""How far a kernel may be from `F.linear` on a real weight, as a share of the result's norm."""


def for_decoding(
    model: nn.Module, weights: Weights = "fp32", *, rows: int = 1, compiled: bool = False
) -> nn.Module:
    """A copy of the model that decodes about `rows` rows at once fast; the model stays as it is.

    fp32: the same numbers up to rounding. bf16: the whole model in bfloat16; distributions are
    still computed in float32. int8: the matrices in 8 bits, all else in float32; on a CPU only.
    Every nn.Linear becomes a `Matrix`, and so does the output that a `EncoderDecoder` shares with
    its embedding. compiled: only kernels that torch.compile can follow.
    A matrix that no such kernel serves stays as it is, and says why in its `reason`. Unless it
    is to be compiled, calls go past nn.Module's hooks, and activations may be part of a product.
    Raises ValueError for other names, below one row, and for int8 on another device or compiled.
    """
    if weights not in ("fp32", "bf16", "int8"):
        raise ValueError(f"weights are fp32, bf16 or int8, got {weights}")
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    device = next(model.parameters()).device.type
    if weights == "int8" and device != "cpu":
        raise ValueError(f"int8 weights decode on a CPU only, this model is on {device}")
    if weights == "int8" and compiled:
        raise ValueError(
            "int8 weights cannot be compiled: their product is opaque to torch.compile"
        )
    fast = copy.deepcopy(model).eval().requires_grad_(False)
    if weights == "bf16":
        fast.to(torch.bfloat16)
    makers = candidates(weights, rows, device)
    if compiled:
        # What torch.compile makes of columns took four times as long as row sums.
        makers = [RowSum] if RowSum in makers or Columns in makers else []
    if weights == "fp32" and is_small(bytes_of_a_step(fast), rows):
        makers = [maker for maker in makers if maker is Columns]
    made: dict[int, Matrix] = {}
    for part in list(fast.modules()):
        for name, child in part.named_children():
            if isinstance(child, nn.Linear):
                if id(child) not in made:  # one matrix may serve in two places
                    made[id(child)] = fastest(child, makers, rows, TOLERANCE[weights])
                setattr(part, name, made[id(child)])
        if isinstance(part, EncoderDecoder) and part.output is None:
            table = part.target_embedding.table
            vocabulary, width = table.weight.shape
            output = nn.Linear(width, vocabulary, bias=False, device="meta")
            output.weight = table.weight
            part.output = fastest(output, makers, rows, TOLERANCE[weights])
    if not compiled:
        for part in fast.modules():
            if isinstance(part, FeedForward) and device == "cpu":
                join_activation(part, rows)
        for part in fast.modules():
            call_straight(part)
    return fast


def row_steps() -> list[int]:
    """Numbers of rows, 1 first, from which `for_decoding` may choose otherwise on this machine."""
    with_amx = has_matrix_units()
    packed = [FEWEST_PACKED_ROWS] if with_amx else []
    return sorted({1, 2, *packed, *(few for _, few in SMALL[with_amx])})


def bytes_of_a_step(model: nn.Module) -> int:
    """Bytes of the matrices that a step reads: of a translator's none that read the source, which
    have run then, but that of the output that it shares with its embedding."""
    reads = [model.decoder, model.output] if isinstance(model, EncoderDecoder) else [model]
    parts = [part for read in reads if read is not None for part in read.modules()]
    ran = {id(part.kv_proj) for part in parts if isinstance(part, CrossAttention)}
    total = sum(
        part.weight.nbytes for part in parts if isinstance(part, nn.Linear) and id(part) not in ran
    )
    if isinstance(model, EncoderDecoder) and model.output is None:
        total += model.target_embedding.table.weight.nbytes
    return total


def is_small(n_bytes: int, rows: int) -> bool:
    """Whether float32 matrices of so many bytes are read from the cache, see `SMALL`."""
    return any(n_bytes < most and rows < few for most, few in SMALL[has_matrix_units()])


Maker = Callable[[nn.Linear], Matrix]


def candidates(weights: Weights, rows: int, device: str) -> list[Maker]:
    """The kernels to try, best first, by what was measured on processors of this kind."""
    if device != "cpu":
        return []
    if weights == "int8":
        return [Int8]
    packed: Maker = lambda linear: OneDNN(linear, rows)  # noqa: E731
    if not has_wide_vectors():
        return []
    if has_matrix_units():  # Intel's, with MKL at its best
        if rows == 1:
            return [Columns] if weights == "fp32" else [RowSum, packed]
        return [] if weights == "fp32" and rows < FEWEST_PACKED_ROWS else [packed]
    return [RowSum, packed] if weights == "fp32" and rows == 1 else [packed]


def fastest(linear: nn.Linear, makers: list[Maker], rows: int, tolerance: float) -> Matrix:
    """The first kernel that serves this matrix and agrees with `F.linear` on it."""
    reasons = []
    weight = linear.weight
    if makers and weight.dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(rows, linear.in_features, generator=torch.Generator().manual_seed(0))
        x = x.to(weight.dtype)
        with torch.no_grad():
            expected = F.linear(x, weight, linear.bias).float()
            for maker in makers:
                try:
                    matrix = maker(linear)
                    error = (matrix(x).float() - expected).norm() / expected.norm().clamp(min=1e-30)
                except (RuntimeError, AttributeError, TypeError, NotImplementedError) as problem:
                    reasons.append(f"{type(problem).__name__}: {str(problem).splitlines()[0]}")
                    continue
                if error <= tolerance:
                    matrix.reason = "; ".join(reasons)
                    return matrix
                reasons.append(f"{type(matrix).__name__} was off by {float(error):.1e}")
    return Plain(linear, "; ".join(reasons))
