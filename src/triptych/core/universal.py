"""Universal Transformer: one block applied T times (Dehghani et al. 2018, 1807.03819)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from triptych.core.attention.context import NO_CONTEXT, ForwardContext, StepContext
from triptych.core.generation_order import GenerationOrder
from triptych.core.halting import AdaptiveDepth, FixedDepth, Halting, Iterated, Transition
from triptych.core.positions import NoPositions, SinusoidalEmbedding
from triptych.core.state import DecodingState, Own
from triptych.core.transformer import Block, Decoder, DepthConfig, Stack, TransformerConfig


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
