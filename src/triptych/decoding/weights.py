"""A model's matrices made ready for decoding: few rows, so that reading them is the cost.

Which kernel reads them fastest depends on the processor, the precision and the number of rows.
Measured with two threads on a processor with AVX-512 and AVX512-BF16 and without matrix units,
microseconds for the four products of a block of width 512, weights streamed from memory (reading
the float32 weights alone: 270):

| rows | `F.linear` fp32 | oneDNN fp32 | row sums fp32 | `F.linear` bf16 | oneDNN bf16 | int8 |
|---|---|---|---|---|---|---|
| 1 | 743 | 368 | 294 | 189 | 176 | 91 |
| 2 | 1087 | 332 | 421 | 307 | 182 | 100 |
| 8 | 1000 | 402 | | 323 | 218 | 127 |
| 32 | 1639 | 696 | | 505 | 376 | 278 |
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.processor import has_matrix_units, has_wide_vectors
from triptych.core.seq2seq import Seq2Seq

Weights = Literal["fp32", "bf16", "int8"]


class Matrix(nn.Module):
    """A linear map that only decodes: [..., in] -> [..., out]; no gradient reaches its weights.

    `reason` says why it is no faster than it is, where something was tried and did not serve.
    """

    reason: str = ""
    compiles: bool = True
    """Whether torch.compile can look inside; a packed weight is opaque to it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.training = linear.training

    def __call__(self, x: Tensor) -> Tensor:
        """Straight to `forward`: the hooks of nn.Module cost a microsecond a call in a step."""
        y: Tensor = self.forward(x)
        return y

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{text}, reason={self.reason!r}" if self.reason else text


class Plain(Matrix):
    """`F.linear`, where nothing faster serves; no copy of the weights."""

    def __init__(self, linear: nn.Linear, reason: str = "") -> None:
        super().__init__(linear)
        self.weight, self.bias = linear.weight, linear.bias
        self.reason = reason

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class RowSum(Matrix):
    """One row: the sum of the transposed weight's rows, each times its input.

    `F.embedding_bag` does that in one pass over memory. The outputs stand in blocks, one after
    another in memory and a bag each, so that threads share them and each reads on without a jump:
    1.2 times the time of reading the weights, where whole rows took 1.4 times. The bias is one row
    more, whose input is always 1. More rows of inputs at once take a plain product.
    Not for two threads at once: the inputs are laid out in a place of the module's own.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach()
        bias = weight.new_zeros(self.out_features) if linear.bias is None else linear.bias.detach()
        width = 256  # outputs of a block
        while width > 32 and self.out_features < width * torch.get_num_threads():
            width //= 2
        blocks = -(-self.out_features // width)
        columns = torch.cat([weight, bias.unsqueeze(1)], dim=1)  # [out, in + 1]
        columns = F.pad(columns, (0, 0, 0, blocks * width - self.out_features))
        # Plain attributes: a step asks for them often, and nn.Module answers slowly for buffers.
        self.blocks = columns.view(blocks, width, -1).mT.contiguous()  # [blocks, in + 1, width]
        self.table = self.blocks.flatten(0, 1)  # [blocks (in + 1), width]
        self.index = torch.arange(len(self.table), dtype=torch.int32)
        self.starts = torch.arange(blocks, dtype=torch.int32) * (self.in_features + 1)
        inputs = weight.new_ones(blocks, self.in_features + 1)
        self.inputs, self.place = inputs.view(-1), inputs[:, :-1]

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() != self.in_features:
            rows = x.reshape(-1, self.in_features)
            several = torch.matmul(rows, self.blocks[:, :-1]) + self.blocks[:, -1:]
            y = several.transpose(0, 1).flatten(1)[:, : self.out_features]  # [N, out]
            return y.view(*x.shape[:-1], self.out_features)
        self.place.copy_(x.view(1, -1))
        sums = torch.embedding_bag(
            self.table, self.index, self.starts, False, 0, False, self.inputs, False
        )[0]  # [blocks, width]
        return sums.view(-1)[: self.out_features].view(*x.shape[:-1], self.out_features)


class OneDNN(Matrix):
    """oneDNN's product with a weight that was laid out for it, once, for about `rows` rows."""

    compiles = False

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        super().__init__(linear)
        weight = linear.weight.detach().contiguous()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return y


class MatrixVector(Matrix):
    """One row in bfloat16 on a processor with matrix units: `torch.mv` took 1/1.4 of `F.linear`."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() != self.in_features:
            return F.linear(x, self.weight, self.bias)
        y = torch.mv(self.weight, x.reshape(-1))
        if self.bias is not None:
            y = y + self.bias
        return y.view(*x.shape[:-1], self.out_features)


class Int8(Matrix):
    """Weights as int8 with a scale a row, inputs as 8 bits with a scale measured at each call.

    (PyTorch's dynamic quantisation; its modules of `torch.ao` are deprecated, its operators are
    what stays fastest here: `torch._weight_int8pack_mm` took 1.2 times as long at one row and 2 at
    eight.) Without VNNI the products of 8 bits overflow 16, so there the inputs have 7.
    """

    compiles = False

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(1).clamp(min=1e-12) / 127  # [out]
        zero = torch.zeros(self.out_features, dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*")
            rounded = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
            bias = None if linear.bias is None else linear.bias.detach().float()
            self.packed = torch.ops.quantized.linear_prepack(rounded, bias)
        ask = getattr(torch.cpu, "_is_vnni_supported", None)  # private: it may go
        self.seven_bits = not (ask is not None and ask())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, self.seven_bits)
        return y


SMALL = 5 * 2**20
"""Bytes of float32 matrices that stay in the processor's cache between steps: there F.linear was
ahead of every packed kernel for few rows (width 128, 6 layers, 4.7 MB: 1.14 to 1.29 times with 1 to
16 rows, 0.84 times with 64; width 256, 2 layers, 6.3 MB: 0.92 times with one row, 0.74 with 64)."""
FEW = 32
"""Rows below which that holds."""
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2, "int8": 5e-2}
"""How far a kernel may be from `F.linear` on a real weight, as a share of the result's norm."""


def for_decoding(
    model: nn.Module, weights: Weights = "fp32", *, rows: int = 1, compiled: bool = False
) -> nn.Module:
    """A copy of the model that decodes about `rows` rows at once fast; the model stays as it is.

    fp32: the same numbers up to rounding. bf16: the whole model in bfloat16; distributions are
    still computed in float32. int8: the matrices in 8 bits, all else in float32; on a CPU only.
    Every nn.Linear becomes a `Matrix`, and so does the output that a `Seq2Seq` shares with its
    embedding. compiled: only kernels that torch.compile can look into, for `sample(compile=True)`.
    A matrix that no such kernel serves stays as it is, and says why in its `reason`.
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
    linears = [part for part in fast.modules() if isinstance(part, nn.Linear)]
    small = sum(part.weight.nbytes for part in linears) < SMALL and rows < FEW
    makers = [] if weights == "fp32" and small else candidates(weights, rows, device)
    if compiled:
        makers = [maker for maker in makers if maker in (RowSum, MatrixVector)]
    made: dict[int, Matrix] = {}
    for part in list(fast.modules()):
        for name, child in part.named_children():
            if isinstance(child, nn.Linear):
                if id(child) not in made:  # one matrix may serve in two places
                    made[id(child)] = fastest(child, makers, rows, TOLERANCE[weights])
                setattr(part, name, made[id(child)])
        if isinstance(part, Seq2Seq) and part.output is None:
            table = part.target_embedding.table
            vocabulary, width = table.weight.shape
            output = nn.Linear(width, vocabulary, bias=False, device="meta")
            output.weight = table.weight
            part.output = fastest(output, makers, rows, TOLERANCE[weights])
    if not compiled:
        for part in fast.modules():
            # nn.Module finds its parts last of all; as plain attributes too they are found at
            # once, which was worth 7 % of a step of 6 layers at width 512.
            vars(part).update(part._modules | part._parameters)
    return fast


Maker = Callable[[nn.Linear], Matrix]


def candidates(weights: Weights, rows: int, device: str) -> list[Maker]:
    """The kernels to try, best first, by what was measured on processors of this kind."""
    if device != "cpu":
        return []
    if weights == "int8":
        return [Int8]
    packed: Maker = lambda linear: OneDNN(linear, rows)  # noqa: E731
    if has_matrix_units():
        # There MKL and oneDNN reach the memory's speed by themselves, but for one row.
        return [MatrixVector] if weights == "bf16" and rows == 1 else []
    if not has_wide_vectors():
        return []
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
