"""Encoder and decoder: stacks of blocks over pluggable attention, for training and decoding."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from triptych.core.attention.base import AttentionConfig, LayerCache
from triptych.core.attention.context import Place
from triptych.core.attention.cross import CrossAttention
from triptych.core.attention.full import Full
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.block import Block, remember, through
from triptych.core.layers import Activation, FeedForward, NormPlace, initialise

State = list[LayerCache]
"""What a decoder keeps between steps: one dict of tensors a layer, B first in each."""
Places = dict[Hashable, Place | None]
"""What a step takes from its position alone, for each kind of attention."""


MOST_DROPPED = 0.99
"""Above it a share may round to all of the weights."""
FEWEST_FLEX_FEATURES = 16
"""Below it PyTorch compiles no kernel of FlexAttention."""
LEAST_DROPPED = 0.002
"""Shares of attention weights are rounded to 1/256: less would be none."""


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a stack of Transformer blocks and what they attend with."""

    n_layers: int = 6
    """Number of blocks."""
    d_model: int = 512
    """Width of the model, in features."""
    n_heads: int = 8
    """Number of attention heads; divides d_model."""
    d_ff: int = 2048
    """Width of the feed-forward layers, in features."""
    dropout: float = 0.1
    """Share of features dropped after each sub-layer and after the embedding, 0 to 1."""
    norm: NormPlace = "pre"
    """Where the layer norm stands: `pre` sub-layer (with a final norm) or `post`, as published."""
    activation: Activation = "gelu"
    """Nonlinearity of the feed-forward layers: `relu`, as published, or `gelu`."""
    attention_dropout: float = 0.0
    """Share of attention weights dropped in training, in steps of 1/256; costs 2 to 24 % of the
    time."""
    flex_attention: bool = False
    """Take FlexAttention on a CUDA GPU in place of the own kernels, for heads of at least 16
    features; not where attention is told symbols or drops weights, and not on other devices."""
    attention: AttentionConfig = field(default_factory=Full)
    """Self-attention variant, by class path and settings."""
    recompute: bool = False
    """Compute each block again in the backward pass: less memory, about a third more time."""

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "n_heads", "d_ff"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads must divide d_model, got {self.n_heads} heads at width {self.d_model}"
            )
        if self.flex_attention and self.d_model // self.n_heads < FEWEST_FLEX_FEATURES:
            raise ValueError(
                f"flex_attention needs heads of at least {FEWEST_FLEX_FEATURES} features, got "
                f"{self.d_model // self.n_heads}: width {self.d_model}, {self.n_heads} heads"
            )
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) <= MOST_DROPPED:
                raise ValueError(
                    f"{name} must be in [0, {MOST_DROPPED}], got {getattr(self, name)}"
                )
        if 0 < self.attention_dropout < LEAST_DROPPED:
            raise ValueError(
                f"attention_dropout must be 0 or at least {LEAST_DROPPED}, below which nothing is "
                f"dropped, got {self.attention_dropout}"
            )
        if self.norm not in ("pre", "post"):
            raise ValueError(f"norm is pre or post, got {self.norm}")
        if self.activation not in ("relu", "gelu"):
            raise ValueError(f"activation is relu or gelu, got {self.activation}")

    def encoder(self, shape: tuple[int, ...], *, n_layers: int | None = None) -> Encoder:
        """A stack that reads in both directions; shape as in `AttentionConfig.build`."""
        blocks = self._blocks(shape, n_layers, causal=False, cross=False)
        return Encoder(blocks, self.norm, recompute=self.recompute)

    def decoder(
        self, shape: tuple[int, ...], *, cross: bool = False, n_layers: int | None = None
    ) -> Decoder:
        """A causal stack, with cross-attention in every block where `cross`."""
        blocks = self._blocks(shape, n_layers, causal=True, cross=cross)
        return Decoder(blocks, self.norm, recompute=self.recompute)

    def _blocks(
        self, shape: tuple[int, ...], n_layers: int | None, *, causal: bool, cross: bool
    ) -> list[Block]:
        blocks = []
        for _ in range(self.n_layers if n_layers is None else n_layers):
            block = Block(
                self.d_model,
                self.attention.build(self.d_model, self.n_heads, shape, causal),
                FeedForward(self.d_model, self.d_ff, self.activation),
                cross=CrossAttention(self.d_model, self.n_heads) if cross else None,
                norm=self.norm,
                dropout=self.dropout,
            )
            for attention in (block.attention, block.cross):
                if attention is not None:
                    attention.dropout = self.attention_dropout
            if isinstance(block.attention, MultiHeadAttention):
                block.attention.flex = self.flex_attention
            blocks.append(block)
        return blocks


class Encoder(nn.Module):
    """A stack of blocks that read in both directions."""

    def __init__(
        self, blocks: Sequence[Block], norm: NormPlace = "pre", *, recompute: bool = False
    ) -> None:
        super().__init__()
        self.recompute = recompute
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm(blocks, norm)
        initialise(self)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """x [B, L, D], padding [B, L] True on padding -> [B, L, D]."""
        for block in self.blocks:
            x = through(block, x, padding, recompute=self.recompute and self.training)
        y: Tensor = self.final_norm(x)
        return y


class Decoder(nn.Module):
    """A causal stack; the same blocks train on whole sequences and decode step by step."""

    def __init__(
        self, blocks: Sequence[Block], norm: NormPlace = "pre", *, recompute: bool = False
    ) -> None:
        super().__init__()
        self.recompute = recompute
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm(blocks, norm)
        self.reads_symbols = any(block.attention.reads_symbols for block in blocks)
        initialise(self)

    def forward(
        self,
        x: Tensor,
        padding: Tensor | None = None,
        memory: Tensor | None = None,
        memory_padding: Tensor | None = None,
        symbols: Tensor | None = None,
    ) -> Tensor:
        """x [B, L, D], memory [B, K, D] from an encoder; paddings True -> [B, L, D].

        symbols [B, L]: as in `SelfAttention.reads_symbols`.
        """
        recompute = self.recompute and self.training
        for block in self.blocks:
            x = through(block, x, padding, memory, memory_padding, symbols, recompute=recompute)
        y: Tensor = self.final_norm(x)
        return y

    def init_cache(
        self,
        batch: int,
        max_length: int,
        memory: Tensor | None = None,
        memory_padding: Tensor | None = None,
        *,
        ahead: int = 0,
    ) -> State:
        """Storage to decode at most `max_length` positions; the memory is projected here, once.

        ahead: as in `SelfAttention.init_cache`.
        """
        return [
            block.attention.init_cache(batch, max_length, ahead)
            | (remember(block, memory, memory_padding) or {})
            for block in self._blocks()
        ]

    def prefill(self, x: Tensor, state: State, symbols: Tensor | None = None) -> Tensor:
        """Positions 0..P-1 at once into an empty state: [B, P, D] -> [B, P, D]."""
        for block, layer_state in zip(self._blocks(), state, strict=True):
            x = block.prefill(x, layer_state, symbols)
        y: Tensor = self.final_norm(x)
        return y

    def step(
        self,
        x: Tensor,
        position: Tensor,
        state: State,
        symbols: Tensor | None = None,
        places: Places | None = None,
    ) -> Tensor:
        """One position: x [B, 1, D], position int64 [] on the device -> [B, 1, D].

        Or several in a row, [B, P, D] and int64 [P], as in `SelfAttention.step`. places: what
        `places` gave for this position, where the caller has it already.
        """
        places = {} if places is None else places
        for block, layer_state in zip(self._blocks(), state, strict=True):
            kind = block.attention.kind()
            if kind not in places:
                places[kind] = block.attention.place(position, layer_state)
            x = block.step(x, position, layer_state, places[kind], symbols)
        y: Tensor = self.final_norm(x)
        return y

    def places(self, positions: Tensor, state: State) -> list[Places]:
        """What the steps at positions int64 [R] need, all at once: together it costs little more
        than for one. The steps must be given this very state, not another view of it."""
        found: list[Places] = [{} for _ in range(positions.shape[0])]
        for block, layer_state in zip(self._blocks(), state, strict=True):
            kind = block.attention.kind()
            if found and kind not in found[0]:
                for places, place in zip(
                    found, block.attention.places(positions, layer_state), strict=True
                ):
                    places[kind] = place
        return found

    def narrow(self, state: State, length: int) -> State:
        """Views of the state that the first `length` positions need; a step reads no more."""
        return [
            block.attention.narrow(layer_state, length)
            for block, layer_state in zip(self._blocks(), state, strict=True)
        ]

    def _blocks(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]


def final_norm(blocks: Sequence[Block], norm: NormPlace) -> nn.Module:
    """A pre-norm stack ends with a norm; a post-norm stack has just had one."""
    if norm == "post":
        return nn.Identity()
    width = blocks[0].attention_residual.norm.normalized_shape[0]
    return nn.LayerNorm(width)
