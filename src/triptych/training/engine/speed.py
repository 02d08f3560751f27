"""Speed of training: loss and targets per second, operations by formulas, the peaks of GPUs.

An operation is a multiplication or an addition: a product of matrices a x b and b x c has 2abc.
"""

import math
import time
from collections.abc import Callable

from torch import Tensor, nn

from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.transformer import Stack


class Throughput:
    """Sums of loss and targets since the last report, and the time of training without validation.

    seconds_waiting: returns the total seconds that the training has waited for batches.
    """

    def __init__(self, seconds_waiting: Callable[[], float] = float) -> None:
        self._seconds_waiting = seconds_waiting
        self._start = time.monotonic()
        self._paused_at: float | None = None
        self.reset()

    def reset(self) -> None:
        """Begin the next report."""
        self._seconds_before = self.total_seconds()
        self._waited_before = self._seconds_waiting()
        self._loss_sum: Tensor | float = 0.0
        self._targets: Tensor | float = 0.0

    def add(self, *, targets: Tensor, loss_sum: Tensor) -> None:
        """Add a step; loss_sum: of the objective over its targets."""
        self._targets = self._targets + targets
        self._loss_sum = self._loss_sum + loss_sum

    def pause(self) -> None:
        self._paused_at = time.monotonic()

    def resume(self) -> None:
        if self._paused_at is not None:
            self._start += time.monotonic() - self._paused_at
            self._paused_at = None

    def loss(self) -> float:
        """Return the mean objective per target since the last report; NaN without targets."""
        targets = float(self._targets)
        return float(self._loss_sum) / targets if targets else math.nan

    def is_finite(self) -> bool:
        """Return whether every loss since the last report was finite."""
        return math.isfinite(float(self._loss_sum))

    def tokens_per_second(self) -> float:
        """Return targets per second of training since the last report."""
        return float(self._targets) / self._seconds()

    def data_share(self) -> float:
        """Return the share of the time since the last report spent waiting for batches."""
        return (self._seconds_waiting() - self._waited_before) / self._seconds()

    def total_seconds(self) -> float:
        """Return seconds of training since the start of this process's training."""
        now = time.monotonic() if self._paused_at is None else self._paused_at
        return now - self._start

    def _seconds(self) -> float:
        return max(1e-9, self.total_seconds() - self._seconds_before)


# NVIDIA's documents state most peaks with sparsity, which is twice the dense peak:
# B200: NVIDIA Blackwell Architecture Technical Brief, table of HGX B200.
# H200: H200 datasheet, https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446
# H100 SXM and PCIe: H100 datasheet, https://resources.nvidia.com/en-us-tensor-core
# L40S: L40S datasheet. L4: Ada architecture whitepaper v2.1,
# https://images.nvidia.com/aem-dam/Solutions/Data-Center/l4/nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf
# A100: A100 datasheet, nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf on www.nvidia.com
PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A100": 312e12,
}
"""Dense bf16 operations per second by a part of the device's name."""


def peak_flops(device_name: str) -> float | None:
    """Return the dense bf16 operations per second of a GPU; None where they are not known."""
    words = device_name.replace("-", " ")
    return next((peak for name, peak in PEAKS.items() if f" {name} " in f" {words} "), None)


def attention_flops(layer: MultiHeadAttention, length: int) -> int:
    """Return the operations over the visible pairs of a sequence, projections excluded.

    In the forward pass; a training step has three times as many.
    """
    return 4 * layer.n_heads * layer.d_head * layer.mask_pattern.visible_pairs(length)


def training_flops(model: nn.Module, length: int = 0) -> float:
    """Return the operations of a training step per target: of the parameters and of attention.

    Each parameter takes 2 in the forward pass, 2 for the gradient of its input, and 2 for its own
    if it is trained (Chowdhery et al. 2022, appendix B); a layer counts as often as it is applied.
    length: of the sequences; 0 leaves attention out.
    """
    repeats = {  # of the blocks of a stack, which may be fewer than its layers
        part: stack.n_layers // len(stack.blocks)
        for stack in model.modules()
        if isinstance(stack, Stack)
        for block in stack.blocks
        for part in block.modules()
    }
    uses: dict[nn.Parameter, int] = {}  # a weight that two modules share counts once
    by_pattern: dict[tuple[nn.Module, int], int] = {}  # layers of a stack share the pattern
    attention = 0
    for part in model.modules():
        times = repeats.get(part, 1)
        uses |= dict.fromkeys(part.parameters(recurse=False), times)
        if length and isinstance(part, MultiHeadAttention):
            key = part.mask_pattern, part.n_heads * part.d_head
            if key not in by_pattern:
                by_pattern[key] = attention_flops(part, length)
            attention += 3 * times * by_pattern[key]
    per_target = sum(n * p.numel() * (6 if p.requires_grad else 4) for p, n in uses.items())
    return per_target + (attention / length if length else 0.0)
