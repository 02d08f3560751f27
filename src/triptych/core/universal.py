"""Universal Transformer: one block applied T times, or until each position halts on its own.

Dehghani et al. 2018, 1807.03819; halting: Graves 2016, 1603.08983.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from triptych.core.heads import at_least_float32
from triptych.core.positions import GenerationOrder, NoPositions, SinusoidalEmbedding
from triptych.core.transformer import Depth, DepthConfig, Layer, TransformerConfig
from triptych.types import Checked, NonNegativeFloat, OpenUnitInterval


@dataclass(frozen=True)
class Halting(Checked):
    """Adaptive computation time (ACT: Graves 2016, 1603.08983) at each position on its own."""

    threshold: OpenUnitInterval = 0.99
    """Sum of the halting probabilities of a position at which it halts, above 0 and below 1; the
    paper calls it 1 - epsilon."""
    ponder_cost: NonNegativeFloat = 0.01
    """Factor of the ponder cost in the training loss, in nats per step of a position, 0 or more."""


class Halted(NamedTuple):
    """Result of a recurrence whose positions halt."""

    output: Tensor
    """[B, L, D]."""
    ponder: Tensor
    """Ponder cost of each position, N + R, float32 or wider [B, L]."""
    weights: Tensor
    """Halting weights, which add up to 1 over the T steps: [B, L, T]."""


class AdaptiveDepth(nn.Module):
    """At most T steps; a position halts where its halting probabilities reach the threshold.

    Halting probability: a sigmoid of one linear unit of the state (Graves 2016, section 2). Steps
    n = 1..N - 1 of a position have their probabilities as weights and step N, T at most, the
    remainder R, so that they add up to 1. The output is the mean of the states under the weights.
    A position that has halted keeps its state, which others go on reading: all steps are computed
    at all positions, so that none waits for the device.
    """

    def __init__(self, d_model: int, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.unit = nn.Linear(d_model, 1)
        nn.init.xavier_uniform_(self.unit.weight)
        nn.init.ones_(self.unit.bias)  # as published: the first probabilities are about 0.73

    def forward(self, x: Tensor, steps: Sequence[Layer]) -> Halted:
        """x [B, L, D] -> the mean of the states, the ponder cost and the weights."""
        state, output = x, torch.zeros_like(x)
        running = torch.ones_like(x[..., 0], dtype=torch.bool)  # [B, L]
        total = at_least_float32(torch.zeros_like(x[..., 0]))  # [B, L], of the weights so far
        ponder = total
        weights = []
        for n, step in enumerate(steps, start=1):
            state = torch.where(running.unsqueeze(-1), step(state), state)  # [B, L, D]
            p = torch.ones_like(total)  # [B, L], the halting probability
            if n < len(steps):
                p = at_least_float32(self.unit(state)).sigmoid().squeeze(-1)
            halts = total + p >= self.threshold  # [B, L]
            weight = torch.where(halts, 1 - total, p) * running  # [B, L]
            output = output + weight.unsqueeze(-1) * state  # [B, L, D]
            # N counts the steps, and R is the weight of the last one.
            ponder = ponder + running + weight * halts
            total = total + weight
            running = running & ~halts
            weights.append(weight)
        return Halted(output.to(x.dtype), ponder, torch.stack(weights, dim=-1))


def halts(model: nn.Module) -> bool:
    """Whether positions of the model halt on their own."""
    return any(isinstance(module, AdaptiveDepth) for module in model.modules())


@contextmanager
def capture_halting(model: nn.Module) -> Iterator[list[Tensor]]:
    """Capture the halting weights [B, L, T] of all stacks below `model`, in the order they run."""
    captured: list[Tensor] = []

    def capture(_: Any, arguments: Any, result: Halted) -> None:
        captured.append(result.weights.detach())

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, AdaptiveDepth):
                hooks.enter_context(module.register_forward_hook(capture))
        yield captured


def steps_of(weights: Tensor) -> Tensor:
    """Number of steps N of each position from its halting weights [..., T]: int64 [...]."""
    return (weights > 0).sum(-1)


@dataclass(frozen=True)
class Universal(DepthConfig):
    """One block is applied n_layers times: T steps of a recurrence over depth.

    Before each step the block's input gets the position encoding and that of the step's number
    (section 2.1, equation 6). Published with `norm_position: post`.
    """

    halting: Halting | None = None
    """Adaptive halting of each position, after at most n_layers steps; null for all n_layers."""

    one_block = True

    def build(self, config: TransformerConfig, shape: tuple[int, ...]) -> UniversalDepth:
        """As in `DepthConfig`; ValueError for two attention variants, and for halting in 1 step."""
        if config.second_attention is not None:
            raise ValueError("one block for all layers cannot alternate with second_attention")
        if self.halting is not None and config.n_layers == 1:
            raise ValueError("halting needs n_layers of at least 2: a step to halt before the last")
        positions = config.positions.build(config.d_model, config.attention.order_of(shape))
        return UniversalDepth(config.d_model, positions, self.halting)

    def input_positions(self, config: TransformerConfig, order: GenerationOrder) -> nn.Module:
        return NoPositions().build(config.d_model, order)  # the stack adds them in each step


class UniversalDepth(Depth):
    """T steps of one block; before each its input gets the encodings of position and step."""

    def __init__(self, d_model: int, positions: nn.Module, halting: Halting | None) -> None:
        super().__init__()
        self.positions = positions
        self.step_numbers = SinusoidalEmbedding(d_model)
        self.ponder_cost = 0.0 if halting is None else halting.ponder_cost
        self.halting = None if halting is None else AdaptiveDepth(d_model, halting.threshold)

    def forward(
        self, x: Tensor, positions: Tensor, layers: Sequence[Layer]
    ) -> tuple[Tensor, Tensor | None]:
        encodings = self.positions(positions)  # [L, D]
        numbers = self.step_numbers(torch.arange(1, len(layers) + 1, device=x.device))  # [T, D]

        def step(number: Tensor, layer: Layer, state: Tensor) -> Tensor:
            return layer(state + (encodings + number).to(state.dtype))

        steps = [partial(step, *each) for each in zip(numbers, layers, strict=True)]
        if self.halting is None:
            return super().forward(x, positions, steps)
        halted: Halted = self.halting(x, steps)
        return halted.output, self.ponder_cost * halted.ponder
