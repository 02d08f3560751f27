"""Universal Transformer: one block applied T times, or until each position halts on its own.

Dehghani et al. 2018, 1807.03819; halting: Graves 2016, 1603.08983.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from triptych.core.heads import at_least_float32
from triptych.core.positions import GenerationOrder, NoPositions, SinusoidalEmbedding
from triptych.core.state import NO_CONTEXT, DecodingState, ForwardContext, Own, StepContext
from triptych.core.transformer import Block, Decoder, DepthConfig, Stack, TransformerConfig

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


@dataclass(frozen=True)
class Universal(DepthConfig):
    """One block is applied n_layers times: T steps of a recurrence over depth.

    Before each step the block's input gets the position encoding and that of the step's number
    (section 2.1, equation 6). Published with `norm_position: post`.
    """

    halting: Halting | None = None
    """Adaptive halting of each position, after at most n_layers steps; null for n_layers steps at
    every position."""

    def encoder(self, config: TransformerConfig, shape: tuple[int, ...]) -> UniversalStack:
        return UniversalStack(config, self.halting, shape, causal=False)

    def decoder(
        self, config: TransformerConfig, shape: tuple[int, ...], cross: bool
    ) -> UniversalDecoder:
        return UniversalDecoder(config, self.halting, shape, causal=True, cross=cross)

    def input_positions(self, config: TransformerConfig, order: GenerationOrder) -> nn.Module:
        return NoPositions().build(config.d_model, order)  # the stack adds them in each step


class UniversalStack(Stack):
    """One block applied T times, then a final norm; `blocks` holds the one block.

    Raises ValueError for two attention variants, and for halting with a single step.
    """

    def __init__(
        self,
        config: TransformerConfig,
        halting: Halting | None,
        shape: tuple[int, ...],
        *,
        causal: bool,
        cross: bool = False,
    ) -> None:
        if config.second_attention is not None:
            raise ValueError("one block for all layers cannot alternate with second_attention")
        if halting is not None and config.n_layers == 1:
            raise ValueError("halting needs n_layers of at least 2: a step to halt before the last")
        super().__init__(replace(config, n_layers=1), shape, causal=causal, cross=cross)
        self.n_layers = config.n_layers
        order = config.attention.order_of(shape)
        self.positions = config.positions.build(config.d_model, order)
        self.step_numbers = SinusoidalEmbedding(config.d_model)
        self.depth: FixedDepth | AdaptiveDepth = FixedDepth()
        self.ponder_cost = 0.0
        if halting is not None:
            self.depth = AdaptiveDepth(config.d_model, halting.threshold)
            self.ponder_cost = halting.ponder_cost

    def block_of(self, layer: int) -> tuple[Block, int]:
        return self.blocks[0], layer - 1

    def forward(
        self,
        x: Tensor,
        context: ForwardContext = NO_CONTEXT,
        state: DecodingState[Any] | None = None,
    ) -> Tensor:
        """Positions 0..L-1: x [B, L, D] -> [B, L, D]; state: empty, filled where given."""
        block = self.blocks[0]
        context = block.attention.shared_context(x, context)
        layers = [None] * self.n_layers if state is None else state.layers
        memory = None if state is None else state.memory[0]

        def apply(t: int, y: Tensor) -> Tensor:
            if self.activation_checkpointing and self.training:
                y = checkpoint(block, y, context, layers[t], memory, use_reentrant=False)
            else:
                y = block(y, context, layers[t], memory)
            return y

        positions = torch.arange(x.shape[1], device=x.device)  # [L]
        if context.first_position is not None:
            positions = positions + context.first_position
        iterated = self._iterate(x, positions, apply)
        if self.training and iterated.ponder is not None:
            cost = self.ponder_cost * iterated.ponder  # [B, L]
            self.auxiliary_loss = cost if context.real is None else cost * context.real
        y: Tensor = self.final_norm(iterated.output)
        return y

    def _iterate(self, x: Tensor, positions: Tensor, block: Transition) -> Iterated:
        """Apply the block to x [B, L, D] at positions int64 [L], with the signals of each step."""
        encodings = self.positions(positions)  # [L, D]
        numbers = self.step_numbers(torch.arange(1, self.n_layers + 1, device=x.device))  # [T, D]

        def transition(t: int, state: Tensor) -> Tensor:
            return block(t, state + (encodings + numbers[t]).to(state.dtype))

        iterated: Iterated = self.depth(x, transition, self.n_layers)
        return iterated


class UniversalDecoder(UniversalStack, Decoder):
    """A causal stack with one cache per step t: that of the keys and values of its states.

    The steps share the projected memory, as the block and the memory are the same in all.
    """

    def init_state(
        self,
        batch: int,
        max_length: int,
        context: ForwardContext = NO_CONTEXT,
        *,
        lookahead: int = 0,
    ) -> DecodingState[None]:
        block = self.blocks[0]
        layers = [
            block.attention.init_cache(batch, max_length, lookahead) for _ in range(self.n_layers)
        ]
        return DecodingState(layers, [block.project_memory(context)], None)

    def step(self, x: Tensor, state: DecodingState[Any], context: StepContext) -> Tensor:
        block, (memory,) = self.blocks[0], state.memory
        now = replace(context, token_classes=block.attention.token_classes(context))
        iterated = self._iterate(
            x, now.positions, lambda t, y: block.step(y, state.layers[t], now, memory)
        )
        y: Tensor = self.final_norm(iterated.output)
        return y

    def state_view(self, state: DecodingState[Own], length: int) -> DecodingState[Own]:
        attention = self.blocks[0].attention
        layers = [attention.cache_view(layer, length) for layer in state.layers]
        return replace(state, layers=layers)
