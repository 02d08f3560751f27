"""Stacks of blocks over pluggable attention, for training and decoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from triptych.core.attention.cross import CrossAttention
from triptych.core.attention.full import Full
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import AttentionConfig, head_width
from triptych.core.layers import (
    GELU,
    FeedForwardConfig,
    LayerNorm,
    NormConfig,
    NormPosition,
    Residual,
)
from triptych.core.positions import GenerationOrder, PositionConfig, Sinusoidal
from triptych.core.state import (
    NO_CONTEXT,
    DecodingState,
    ForwardContext,
    LayerCache,
    Own,
    ProjectedMemory,
    StepContext,
)
from triptych.types import Checked, FractionBelowOne, PositiveInt

Layer = Callable[[Tensor], Tensor]
"""A layer of a stack with its context and cache: [B, L, D] -> [B, L, D]."""


class Depth(nn.Module):
    """Applies the layers of a stack in turn."""

    def forward(
        self, x: Tensor, positions: Tensor, layers: Sequence[Layer]
    ) -> tuple[Tensor, Tensor | None]:
        """x [B, L, D] at positions int64 [L] -> the output of the last layer, [B, L, D].

        Also a loss of each position besides that of the predictions, in nats [B, L]; None for none.
        """
        for layer in layers:
            x = layer(x)
        return x, None


@dataclass(frozen=True)
class DepthConfig(ABC):
    """Which blocks the layers of a stack are, and how they follow one another."""

    one_block: ClassVar[bool]
    """Whether all layers are the same block."""

    @abstractmethod
    def build(self, config: TransformerConfig, shape: tuple[int, ...]) -> Depth:
        """Make what applies the layers; shape: as in `AttentionConfig.mask_pattern`."""

    def input_positions(self, config: TransformerConfig, order: GenerationOrder) -> nn.Module:
        """As `TransformerConfig.input_positions`."""
        return config.positions.build(config.d_model, order)


@dataclass(frozen=True)
class Layers(DepthConfig):
    """Each layer is a block of its own."""

    one_block = False

    def build(self, config: TransformerConfig, shape: tuple[int, ...]) -> Depth:
        return Depth()


@dataclass(frozen=True)
class TransformerConfig(Checked):
    """Sizes of a stack of Transformer blocks, and the parts that it is composed of."""

    n_layers: PositiveInt = 6
    """Number of layers."""
    d_model: PositiveInt = 512
    """Width of the model, in features."""
    n_heads: PositiveInt = 8
    """Number of attention heads; divides d_model."""
    dropout: FractionBelowOne = 0.1
    """Share of features dropped after each sub-layer and after the embedding, 0 to below 1."""
    attention_dropout: FractionBelowOne = 0.0
    """Share of attention weights dropped in training, 0 to below 1."""
    norm: NormConfig = field(default_factory=LayerNorm)
    """Normalisation layer, by class path and settings: LayerNorm or RMSNorm."""
    norm_position: NormPosition = "pre"
    """Norm before each sub-layer (`pre`, with a final norm) or after it (`post`, as published)."""
    feed_forward: FeedForwardConfig = field(default_factory=GELU)
    """Feed-forward layer, by class path and settings: ReLU, GELU or SwiGLU, with its d_ff."""
    positions: PositionConfig = field(default_factory=Sinusoidal)
    """Positions, by class path: Sinusoidal, Learned, Axial, Metrical, Rotary or NoPositions."""
    attention: AttentionConfig = field(default_factory=Full)
    """Self-attention variant, by class path and settings."""
    second_attention: AttentionConfig | None = None
    """Variant of the second, fourth, ... layer of a decoder that alternates two variants, by class
    path and settings; null for the same one in all layers."""
    depth: DepthConfig = field(default_factory=Layers)
    """Blocks of the layers, by class path: Layers, one for each, or Universal, one for all."""
    activation_checkpointing: bool = False
    """Compute each block again in the backward pass: less memory, about a third more time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        head_width(self.d_model, self.n_heads)  # raises ValueError if n_heads is no divisor

    def input_positions(self, order: GenerationOrder) -> nn.Module:
        """Position encodings that a model adds to the inputs of a stack; as `positions.build`."""
        return self.depth.input_positions(self, order)

    def encoder(self, shape: tuple[int, ...]) -> Stack:
        """A stack that reads in both directions; shape as in `AttentionConfig.mask_pattern`."""
        return Stack(self, shape, causal=False)

    def decoder(self, shape: tuple[int, ...], *, cross: bool = False) -> Stack:
        """A causal stack, with cross-attention in every block where `cross`."""
        return Stack(self, shape, causal=True, cross=cross)


class Block(nn.Module):
    """Self-attention, optional cross-attention and feed-forward, each with its residual."""

    variant: AttentionConfig
    """Settings of the self-attention."""

    def __init__(
        self,
        config: TransformerConfig,
        attention: AttentionConfig,
        pattern: MaskPattern,
        *,
        cross: bool,
    ) -> None:
        super().__init__()
        d_model, n_heads = config.d_model, config.n_heads

        def residual() -> Residual:
            return Residual(config.norm.build(d_model), config.norm_position, config.dropout)

        self.variant = attention
        rotary = config.positions.build_rotary(head_width(d_model, n_heads))
        self.attention = attention.build(
            d_model, n_heads, pattern, dropout=config.attention_dropout, rotary=rotary
        )
        # Built here, because the order of the random numbers decides the weights of a seed.
        feed_forward = config.feed_forward.build(d_model)
        self.attention_residual = residual()
        self.cross: CrossAttention | None = None
        if cross:
            self.cross = CrossAttention(d_model, n_heads, config.attention_dropout)
            self.cross_residual = residual()
        self.feed_forward = feed_forward
        self.feed_forward_residual = residual()

    def forward(
        self,
        x: Tensor,
        context: ForwardContext = NO_CONTEXT,
        cache: LayerCache | None = None,
        memory: ProjectedMemory | None = None,
    ) -> Tensor:
        """x [B, L, D] -> [B, L, D]; cache: filled where given; memory: None for the context's."""
        memory = self.project_memory(context) if memory is None else memory
        return self._sublayers(x, lambda y: self.attention(y, context, cache), memory)

    def step(
        self, x: Tensor, cache: LayerCache, context: StepContext, memory: ProjectedMemory | None
    ) -> Tensor:
        """P consecutive positions: [B, P, D] -> [B, P, D]; as in `MultiHeadAttention.step`."""
        return self._sublayers(x, lambda y: self.attention.step(y, cache, context), memory)

    def project_memory(self, context: ForwardContext) -> ProjectedMemory | None:
        """Keys and values of the memory; None without a memory or without cross-attention."""
        if context.memory is None or self.cross is None:
            return None
        return self.cross.project_memory(context.memory)

    def _sublayers(
        self, x: Tensor, self_attention: Callable[[Tensor], Tensor], memory: ProjectedMemory | None
    ) -> Tensor:
        """All sub-layers: x [B, L, D] -> [B, L, D]."""
        x = self.attention_residual(x, self_attention)
        cross = self.cross
        if cross is not None:
            x = self.cross_residual(x, lambda y: cross(y, memory))
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class Stack(nn.Module):
    """Layers one after another, then a final norm; trains on whole sequences, decodes step by step.

    shape: as in `AttentionConfig.mask_pattern`. Raises ValueError for rotary positions with a
    relative bias, and for an attention that cannot read both ways in a stack that does.
    """

    auxiliary_loss: Tensor | None = None
    """Loss of `Depth` in the last pass of training. `take_auxiliary_loss` reads and removes it."""

    def __init__(
        self, config: TransformerConfig, shape: tuple[int, ...], causal: bool, cross: bool = False
    ) -> None:
        super().__init__()
        variants = [config.attention]
        if config.second_attention is not None:
            variants.append(config.second_attention)
        for variant in variants:
            if variant.causal_only and not causal:
                name = type(variant).__name__
                raise ValueError(f"{name} attention is causal; an encoder cannot use it")
        patterns = [variant.mask_pattern(shape, causal) for variant in variants]
        n_blocks = 1 if config.depth.one_block else config.n_layers
        parts = islice(cycle(zip(variants, patterns, strict=True)), n_blocks)
        blocks = [Block(config, *of_block, cross=cross) for of_block in parts]
        self.blocks = cast(Sequence[Block], nn.ModuleList(blocks))
        self.of_variants = [block.attention for block in blocks[: len(variants)]]
        """The first layer of each attention variant; makes the contexts of all its layers."""
        # A post-norm block ends with a norm already.
        post = config.norm_position == "post"
        self.final_norm = nn.Identity() if post else config.norm.build(config.d_model)
        self.n_layers = config.n_layers
        self.causal = causal
        self.activation_checkpointing = config.activation_checkpointing
        self.uses_token_ids = any(block.attention.uses_token_ids for block in blocks)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
        self.depth = config.depth.build(config, shape)

    @property
    def layers(self) -> list[Block]:
        """The block of each layer."""
        return list(islice(cycle(self.blocks), self.n_layers))

    def block_of(self, layer: int) -> tuple[Block, int]:
        """The block of a layer, from 1, and how many layers before this one are the same block."""
        return self.layers[layer - 1], (layer - 1) // len(self.blocks)

    def forward(
        self,
        x: Tensor,
        context: ForwardContext = NO_CONTEXT,
        state: DecodingState[Any] | None = None,
    ) -> Tensor:
        """Positions 0..L-1: x [B, L, D] -> [B, L, D]; state: empty, filled where given."""
        contexts = [layer.shared_context(x, context) for layer in self.of_variants]
        caches = [None] * self.n_layers if state is None else state.layers
        memories = [None] if state is None else state.memory
        parts = zip(self.layers, cycle(contexts), caches, cycle(memories), strict=False)
        layers: list[Layer] = [
            partial(block, context=own, cache=cache, memory=memory)
            for block, own, cache, memory in parts
        ]
        if self.activation_checkpointing and self.training:
            layers = [partial(checkpoint, layer, use_reentrant=False) for layer in layers]
        positions = torch.arange(x.shape[1], device=x.device)  # [L]
        if context.first_position is not None:
            positions = positions + context.first_position
        x, loss = self.depth(x, positions, layers)
        if self.training and loss is not None:
            self.auxiliary_loss = loss if context.real is None else loss * context.real
        x = self.final_norm(x)
        return x

    def init_state(
        self,
        batch: int,
        max_length: int,
        context: ForwardContext = NO_CONTEXT,
        *,
        lookahead: int = 0,
    ) -> DecodingState[None]:
        """Storage to decode at most `max_length` positions; the context's memory is projected here.

        lookahead: as in `MultiHeadAttention.init_cache`.
        """
        layers = [block.attention.init_cache(batch, max_length, lookahead) for block in self.layers]
        return DecodingState(layers, [block.project_memory(context) for block in self.blocks], None)

    def step(self, x: Tensor, state: DecodingState[Any], context: StepContext) -> Tensor:
        """P consecutive positions: x [B, P, D] -> [B, P, D]; as in `MultiHeadAttention.step`."""
        contexts = [
            replace(own, token_classes=layer.token_classes(own))
            for layer, own in zip(self.of_variants, context.of_variants(), strict=True)
        ]
        parts = zip(self.layers, cycle(contexts), state.layers, cycle(state.memory), strict=False)
        layers = [
            partial(block.step, cache=cache, context=own, memory=memory)
            for block, own, cache, memory in parts
        ]
        x, _ = self.depth(x, context.positions, layers)
        x = self.final_norm(x)
        return x

    def step_context(self, positions: Tensor, state: DecodingState[Any]) -> StepContext:
        """Context at positions int64 [..., P] for all blocks, valid with this very state."""
        own, *others = (
            layer.step_context(positions, of_layer)
            for layer, of_layer in zip(self.of_variants, state.layers, strict=False)
        )
        return replace(own, others=tuple(others))

    def state_view(self, state: DecodingState[Own], length: int) -> DecodingState[Own]:
        """Views of the part of the state that holds the first `length` positions."""
        layers = [
            block.attention.cache_view(layer, length)
            for block, layer in zip(self.layers, state.layers, strict=True)
        ]
        return replace(state, layers=layers)


def take_auxiliary_loss(model: nn.Module, real: Tensor | None = None) -> Tensor | float:
    """Sum over positions of the auxiliary losses of all stacks in the last pass of training.

    real: bool [B, L], False at positions of a decoder that are padding; encoders know their own. In
    nats; 0 for stacks without such losses. The stacks keep no loss after this call.
    """
    total: Tensor | float = 0.0
    for stack in model.modules():
        if isinstance(stack, Stack) and stack.auxiliary_loss is not None:
            loss, stack.auxiliary_loss = stack.auxiliary_loss, None  # [B, L]
            if stack.causal and real is not None:
                loss = loss * real
            total = total + loss.sum()
    return total
