"""Linear maps that only decode: one class for each kernel that reads a weight for few rows.

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

The same on two cores with AMX and a slower memory (reading alone: 620 to 760):

| rows | `F.linear` fp32 | oneDNN fp32 | row sums fp32 | `F.linear` bf16 | oneDNN bf16 | int8 |
|---|---|---|---|---|---|---|
| 1 | 697 | 700 | 582 | 458 | 442 | 225 |
| 2 | 652 | 755 | 834 | 650 | 425 | 261 |
| 8 | 1170 | 915 | | 676 | 424 | 372 |
| 32 | 1942 | 1369 | | 774 | 522 | 600 |

And one row there in later runs, by the width of the block (a sum over its float32 weights took 460
to 530, 86 and 5 while these were measured; products can be ahead of a sum):

| width | fp32: `F.linear` | oneDNN | row sums | columns | bf16: `F.linear` | oneDNN | row sums |
|---|---|---|---|---|---|---|---|
| 512 | 545 to 575 | 628 to 671 | 491 to 503 | 420 to 471 | 287 to 456 | 257 to 435 | 191 to 262 |
| 256 | 90 | 154 | 111 | 85 | 150 | 126 | 86 |
| 64 | 26 | 82 | 43 | 17 | 118 | 107 | 54 |
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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

    `F.embedding_bag` does that in one pass over memory, adding up in float32. The outputs stand in
    blocks, one after another in memory and a bag each, so that threads share them and each reads on
    without a jump: 1.1 times the time of reading the weights, where whole rows took 1.4 times. The
    bias is one row more, whose input is always 1. More rows of inputs at once take a plain product.
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
    """oneDNN's product with a weight that was laid out for it, once, for about `rows` rows.

    `then`: what is done to each output while it is at hand, "none", "relu" or "gelu".
    """

    compiles = False
    then = "none"

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        super().__init__(linear)
        weight = linear.weight.detach().contiguous()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, self.then, [], "none"
        )
        return y


class Columns(Matrix):
    """One row in float32 by BLAS, each input's weights side by side in memory.

    MKL adds them up column by column, its threads sharing the outputs: from width 256 on the time
    of reading them. torch.compile would take it apart and lose that.
    """

    compiles = False

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.weight = linear.weight.detach().t().contiguous().t()  # [out, in]
        bias = linear.bias
        self.bias = self.weight.new_zeros(self.out_features) if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() != self.in_features:
            return F.linear(x, self.weight, self.bias)
        y = torch.addmv(self.bias, self.weight, x.view(-1))  # [out]
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
