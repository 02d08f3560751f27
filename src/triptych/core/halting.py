"""Number of steps of a recurrence over depth: fixed, or halting at each position on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from triptych.core.heads import at_least_float32

Transition = Callable[[int, Tensor], Tensor]
"""Step t = 0, 1, ... of a recurrence: the states before it [B, L, D] -> the states after it."""


@dataclass(frozen=True)
class Halting:
    """Adaptive computation time (ACT: Graves 2016, 1603.08983) at each position on its own."""

    threshold: float = 0.99
    """Sum of the halting probabilities of a position at which it halts, above 0 and below 1; the
    paper calls it 1 - epsilon."""
    ponder_cost: float = 0.01
    """Factor of the ponder cost in the training loss, in nats per step of a position, 0 or more."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be above 0 and below 1, got {self.threshold}")
        if not 0 <= self.ponder_cost < float("inf"):
            raise ValueError(f"ponder_cost must be 0 or more, got {self.ponder_cost}")


class Iterated(NamedTuple):
    """Result of a recurrence."""

    output: Tensor
    """[B, L, D]."""
    ponder: Tensor | None = None
    """Ponder cost of each position, N + R, float32 or wider [B, L]; None without halting."""
    weights: Tensor | None = None
    """Halting weights, which add up to 1 over the T steps: [B, L, T]; None without halting."""


class FixedDepth(nn.Module):
    """T steps at every position."""

    def forward(self, x: Tensor, transition: Transition, n_steps: int) -> Iterated:
        """x [B, L, D] -> the states after the last step."""
        for t in range(n_steps):
            x = transition(t, x)
        return Iterated(x)


class AdaptiveDepth(nn.Module):
    """At most T steps; a position halts where its halting probabilities reach the threshold.

    Halting probability: a sigmoid of one linear unit of the state (Graves 2016, section 2). Steps
    n = 1..N - 1 of a position have their probabilities as weights and step N has the remainder R,
    so that the weights add up to 1; step T is the last. The output is the mean of the states under
    the weights. A position that has halted keeps its state, which other positions go on reading.
    All steps are computed at all positions, so that none waits for the device.
    """

    def __init__(self, d_model: int, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.unit = nn.Linear(d_model, 1)
        nn.init.xavier_uniform_(self.unit.weight)
        nn.init.ones_(self.unit.bias)  # as published: the first probabilities are about 0.73

    def forward(self, x: Tensor, transition: Transition, n_steps: int) -> Iterated:
        """x [B, L, D] -> the mean of the states, the ponder cost and the weights."""
        state, output = x, torch.zeros_like(x)
        running = torch.ones_like(x[..., 0], dtype=torch.bool)  # [B, L]
        total = at_least_float32(torch.zeros_like(x[..., 0]))  # [B, L], of the weights so far
        ponder = total
        weights = []
        for t in range(n_steps):
            state = torch.where(running.unsqueeze(-1), transition(t, state), state)  # [B, L, D]
            p = self._probability(state) if t < n_steps - 1 else torch.ones_like(total)  # [B, L]
            halts = total + p >= self.threshold  # [B, L]
            weight = torch.where(halts, 1 - total, p) * running  # [B, L]
            output = output + weight.unsqueeze(-1) * state  # [B, L, D]
            # N counts the steps, and R is the weight of the last one.
            ponder = ponder + running + weight * halts
            total = total + weight
            running = running & ~halts
            weights.append(weight)
        return Iterated(output.to(x.dtype), ponder, torch.stack(weights, dim=-1))

    def _probability(self, state: Tensor) -> Tensor:
        """Halting probabilities of states [B, L, D]: [B, L]."""
        return at_least_float32(self.unit(state)).sigmoid().squeeze(-1)


def halts(model: nn.Module) -> bool:
    """Whether positions of the model halt on their own."""
    return any(isinstance(module, AdaptiveDepth) for module in model.modules())


@contextmanager
def capture_halting(model: nn.Module) -> Iterator[list[Tensor]]:
    """Capture the halting weights [B, L, T] of all stacks below `model`, in the order they run."""
    captured: list[Tensor] = []

    def capture(_: Any, arguments: Any, result: Iterated) -> None:
        assert result.weights is not None
        captured.append(result.weights.detach())

    modules = [module for module in model.modules() if isinstance(module, AdaptiveDepth)]
    handles = [module.register_forward_hook(capture) for module in modules]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


def steps_of(weights: Tensor) -> Tensor:
    """Number of steps N of each position from its halting weights [..., T]: int64 [...]."""
    return (weights > 0).sum(-1)
