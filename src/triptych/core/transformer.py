"""Encoder and decoder: stacks of blocks over pluggable attention, for training and decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from triptych.core.attention.base import AttentionConfig, KVCache
from triptych.core.attention.context import NO_CONTEXT, ForwardContext, StepContexts
from triptych.core.attention.cross import CrossAttention
from triptych.core.attention.full import Full
from triptych.core.attention.multihead import head_width
from triptych.core.block import Block
from triptych.core.feed_forward import GELU, FeedForwardConfig
from triptych.core.norms import LayerNorm, NormConfig, NormPosition, Residual
from triptych.core.positions import PositionConfig, Sinusoidal

MAX_DROPOUT = 0.99
"""Largest share of dropped features and attention weights."""


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a stack of Transformer blocks, and the parts that it is composed of."""

    n_layers: int = 6
    """Number of blocks."""
    d_model: int = 512
    """Width of the model, in features."""
    n_heads: int = 8
    """Number of attention heads; divides d_model."""
    dropout: float = 0.1
    """Share of features dropped after each sub-layer and after the embedding, 0 to 0.99."""
    attention_dropout: float = 0.0
    """Share of attention weights dropped in training, 0 to 0.99."""
    norm: NormConfig = field(default_factory=LayerNorm)
    """Normalisation layer, by class path and settings: LayerNorm or RMSNorm."""
    norm_position: NormPosition = "pre"
    """Norm before each sub-layer (`pre`, with a final norm) or after it (`post`, as published)."""
    feed_forward: FeedForwardConfig = field(default_factory=GELU)
    """Feed-forward layer, by class path and settings: ReLU, GELU or SwiGLU, with its d_ff."""
    positions: PositionConfig = field(default_factory=Sinusoidal)
    """Position encoding, by class path and settings: Sinusoidal, Learned, Axial, Metrical,
    Rotary or NoPositions."""
    attention: AttentionConfig = field(default_factory=Full)
    """Self-attention variant, by class path and settings."""
    activation_checkpointing: bool = False
    """Compute each block again in the backward pass: less memory, about a third more time."""

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "n_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        head_width(self.d_model, self.n_heads)  # raises ValueError if n_heads is no divisor
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) <= MAX_DROPOUT:
                raise ValueError(f"{name} must be in [0, {MAX_DROPOUT}], got {getattr(self, name)}")
        if self.norm_position not in ("pre", "post"):
            raise ValueError(f"norm_position must be pre or post, got {self.norm_position}")

    def encoder(self, shape: tuple[int, ...], *, n_layers: int | None = None) -> Encoder:
        """A stack that reads in both directions; shape as in `AttentionConfig.build`."""
        blocks = self._build_blocks(shape, n_layers, causal=False, cross=False)
        checkpointing = self.activation_checkpointing
        return Encoder(blocks, self._final_norm(), activation_checkpointing=checkpointing)

    def decoder(
        self, shape: tuple[int, ...], *, cross: bool = False, n_layers: int | None = None
    ) -> Decoder:
        """A causal stack, with cross-attention in every block where `cross`."""
        blocks = self._build_blocks(shape, n_layers, causal=True, cross=cross)
        checkpointing = self.activation_checkpointing
        return Decoder(blocks, self._final_norm(), activation_checkpointing=checkpointing)

    def _build_blocks(
        self, shape: tuple[int, ...], n_layers: int | None, *, causal: bool, cross: bool
    ) -> list[Block]:
        rotary = self.positions.build_rotary(head_width(self.d_model, self.n_heads))
        if rotary is not None and not self.attention.supports_rotary:
            name = type(self.attention).__name__
            raise ValueError(f"{name} attention cannot be combined with rotary positions")
        blocks = []
        for _ in range(self.n_layers if n_layers is None else n_layers):
            attention = self.attention.build(self.d_model, self.n_heads, shape, causal)
            attention.dropout = self.attention_dropout
            attention.rotary = rotary
            block = Block(
                attention=attention,
                attention_residual=self._residual(),
                feed_forward=self.feed_forward.build(self.d_model),
                feed_forward_residual=self._residual(),
                cross=CrossAttention(self.d_model, self.n_heads, self.attention_dropout)
                if cross
                else None,
                cross_residual=self._residual() if cross else None,
            )
            blocks.append(block)
        return blocks

    def _residual(self) -> Residual:
        return Residual(self.norm.build(self.d_model), self.norm_position, self.dropout)

    def _final_norm(self) -> nn.Module:
        """The norm after the last block; a post-norm stack already ends with one."""
        return nn.Identity() if self.norm_position == "post" else self.norm.build(self.d_model)


class Stack(nn.Module):
    """Blocks one after another, then a final norm."""

    def __init__(
        self,
        blocks: Sequence[Block],
        final_norm: nn.Module,
        *,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm
        self.activation_checkpointing = activation_checkpointing
        self.uses_token_ids = any(block.attention.uses_token_ids for block in blocks)
        initialise(self)

    def forward(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """x [B, L, D] -> [B, L, D]."""
        for block in self.blocks:
            if self.activation_checkpointing and self.training:
                x = checkpoint(block, x, context, use_reentrant=False)
            else:
                x = block(x, context)
        y: Tensor = self.final_norm(x)
        return y


class Encoder(Stack):
    """A stack of blocks that read in both directions."""


class Decoder(Stack):
    """A causal stack; the same blocks train on whole sequences and decode step by step."""

    def init_cache(
        self,
        batch: int,
        max_length: int,
        context: ForwardContext = NO_CONTEXT,
        *,
        lookahead: int = 0,
    ) -> KVCache:
        """Storage to decode at most `max_length` positions.

        The memory of the context is projected here, once. lookahead: as in
        `SelfAttention.init_cache`.
        """
        return [block.init_cache(batch, max_length, lookahead, context) for block in self._blocks()]

    def prefill(self, x: Tensor, cache: KVCache, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """Positions 0..P-1 at once into an empty cache: [B, P, D] -> [B, P, D]."""
        for block, layer in zip(self._blocks(), cache, strict=True):
            x = block.prefill(x, layer, context)
        y: Tensor = self.final_norm(x)
        return y

    def step(self, x: Tensor, cache: KVCache, contexts: StepContexts) -> Tensor:
        """One position or P consecutive ones: x [B, P, D] -> [B, P, D]; as `SelfAttention.step`.

        contexts: of these positions, from `step_context` or `step_contexts`.
        """
        for block, layer in zip(self._blocks(), cache, strict=True):
            x = block.step(x, layer, contexts[block.attention.sharing_key()])
        y: Tensor = self.final_norm(x)
        return y

    def step_context(self, positions: Tensor, cache: KVCache) -> StepContexts:
        """Context of a step at P consecutive positions int64 [P], for each pattern.

        It is valid for steps with this very cache, not for another view of it.
        """
        contexts: StepContexts = {}
        for block, layer in zip(self._blocks(), cache, strict=True):
            key = block.attention.sharing_key()
            if key not in contexts:
                contexts[key] = block.attention.step_context(positions, layer)
        return contexts

    def step_contexts(self, positions: Tensor, cache: KVCache) -> list[StepContexts]:
        """Contexts of R steps of one position each, int64 [R], computed at once."""
        together = self.step_context(positions.unsqueeze(1), cache)
        return [
            {key: context.at(step) for key, context in together.items()}
            for step in range(positions.shape[0])
        ]

    def cache_view(self, cache: KVCache, length: int) -> KVCache:
        """Views of the part of the cache that holds the first `length` positions."""
        return [
            block.attention.cache_view(layer, length)
            for block, layer in zip(self._blocks(), cache, strict=True)
        ]

    def _blocks(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]


def initialise(module: nn.Module) -> None:
    """Glorot-uniform weights and zero biases for every linear layer of the module."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
