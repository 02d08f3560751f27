"""Accumulated gradients in which every target weighs the same, whatever micro-batch it came in."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Accumulation:
    """Weights of the micro-batches of one update.

    Lightning adds up the gradients of their mean losses and divides by their number, so that a
    target in a small micro-batch would weigh more, and the last, incomplete group of an epoch would
    count as if it were diluted. Here each loss is weighed by its targets, and the sum of gradients
    divided by all of them, which only the end of the group knows. Nothing waits for the device.
    """

    def __init__(self) -> None:
        self._first: Tensor | None = None
        self._targets: Tensor | None = None

    def weight(self, targets: Tensor) -> Tensor:
        """Return the factor of a micro-batch's mean loss; its targets, a scalar, are counted.

        Relative to the first micro-batch, so that the loss keeps its size.
        """
        if self._first is None or self._targets is None:
            self._first = targets.clamp(min=1)
            self._targets = torch.zeros_like(targets)
        self._targets = self._targets + targets
        return targets / self._first

    @torch.no_grad()
    def settle(self, parameters: Iterable[Tensor]) -> None:
        """Turn the weighted sums into means over all targets, in place; the next group begins."""
        if self._first is None or self._targets is None:
            return
        factor = self._first / self._targets.clamp(min=1)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor.to(parameter.grad.dtype))
        self._first = self._targets = None
