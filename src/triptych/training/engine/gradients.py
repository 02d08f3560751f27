"""Weights of accumulated gradients, and their norms."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class TargetWeights:
    """Weights of losses that give every target of an update the same weight.

    Each loss is a mean over the targets of one rank and one micro-batch. DDP averages gradients
    over ranks and Lightning averages losses over micro-batches, which gives a target in a small
    batch more weight. Here a loss is weighted by its targets, relative to those of the update's
    first micro-batch on all ranks, and `rescale` makes the gradients relative to all targets.
    """

    def __init__(self) -> None:
        self._totals: list[Tensor] = []

    def weight(self, targets: Tensor, total: Tensor) -> Tensor:
        """Return the weight of a mean loss; targets: its own, total: of all ranks (scalars)."""
        self._totals.append(total)
        return targets / self._totals[0].clamp(min=1)

    @torch.no_grad()
    def rescale(self, parameters: Iterable[Tensor]) -> None:
        """Divide the gradients by all targets of the update, in place; begin the next update."""
        totals, self._totals = self._totals, []
        if len(totals) < 2:
            return
        factor = totals[0].clamp(min=1) / torch.stack(totals).sum().clamp(min=1)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor.to(parameter.grad.dtype))


def gradient_norms(model: nn.Module) -> dict[str, Tensor]:
    """Return the L2 norm of all gradients, train/gradient_norm, and of each part's.

    The parts are the model's direct children, gradient_norm/<name>; a parameter that two of them
    share counts for the first. Their squares add up to the square of the whole.
    """
    parts: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            parts.setdefault(name.partition(".")[0], []).append(parameter.grad)
    every = [gradient for part in parts.values() for gradient in part]
    norm = nn.utils.get_total_norm
    each = {f"gradient_norm/{name}": norm(part) for name, part in parts.items()}
    return {"train/gradient_norm": norm(every), **each}
