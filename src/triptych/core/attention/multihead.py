"""Multi-head self-attention, shared by every variant, and the config of a variant that makes it.

Sizes in shape comments: B batch, L positions, K keys, H heads, E width of a head, D width of the
model, S cache slots, P positions of one step, T period of the relative bias.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.backends.dispatch import attend, attention_weights
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.relative_bias import RelativeBias, ScalarBias, TokenBias
from triptych.core.positions import GenerationOrder, RotaryEmbedding, raster
from triptych.core.state import NO_CONTEXT, ForwardContext, LayerCache, StepContext
from triptych.types import Checked


class MultiHeadAttention(nn.Module):
    """Multi-head scaled dot-product attention of a sequence to itself (Vaswani et al. 2017, 3.2).

    One class trains and decodes: stepping t = 0..L-1 gives exactly `forward(x)[:, t]`, and so does
    `forward` of the first P positions into a cache and then steps. `reference` is the definition.
    A subclass may replace `project`, `pair_weights`, `example_mask` and `merge`.

    pattern: which keys a query sees. bias: added to the logits. dropout: share of the attention
    weights that training drops. rotary: rotates queries and keys by their positions.
    Raises ValueError where the number of heads does not divide the width.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        pattern: MaskPattern,
        bias: RelativeBias | None = None,
        *,
        dropout: float = 0.0,
        rotary: RotaryEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.n_heads = self.n_key_heads = n_heads
        self.d_head = head_width(d_model, n_heads)
        self.mask_pattern = pattern
        self.bias = bias
        self.uses_token_ids = isinstance(bias, TokenBias)
        self.dropout = dropout
        self.rotary = rotary
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        # A scalar that follows the dtype and the device, also where the matrices are int8.
        self.register_buffer("placeholder", torch.zeros(()), persistent=False)

    placeholder: Tensor

    def forward(
        self, x: Tensor, context: ForwardContext = NO_CONTEXT, cache: LayerCache | None = None
    ) -> Tensor:
        """Attention of positions 0..L-1 to each other: x [B, L, D] -> [B, L, D].

        cache: filled with the positions where given (prefill); a context with padding then raises
        ValueError. A query without a visible key gets zeros from the attention, never NaN.
        """
        context = self.shared_context(x, context)
        q, k, v = self.heads(x, context.rotation)
        if cache is not None:
            self.fill(cache, k, v, context)
        dropout = self.dropout if self.training else 0.0
        if self.by_definition:
            weights = F.dropout(self._weights(q, k, context), dropout)  # [B, H, L, L]
            return self.merge(weights @ self.for_queries(v))
        tokens, real = context.token_classes, context.real
        k, v = self.for_queries(k), self.for_queries(v)
        y = attend(
            self.mask_pattern, self.bias, q, k, v, token_classes=tokens, real=real, dropout=dropout
        )
        return self.merge(y)

    def reference(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """The same as `forward` without dropout, computed slowly from the definition."""
        _, _, v = self.heads(x, self.shared_context(x, context).rotation)
        return self.merge(self.weights(x, context) @ self.for_queries(v))

    def weights(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """Weights by the definition, without dropout, of sum 1 or 0: [B, L, D] -> [B, H, L, L]."""
        context = self.shared_context(x, context)
        q, k, _ = self.heads(x, context.rotation)
        return self._weights(q, k, context)

    def _weights(self, q: Tensor, k: Tensor, context: ForwardContext) -> Tensor:
        positions = torch.arange(q.shape[2], device=q.device)  # [L]
        query, key = positions.unsqueeze(1), positions.unsqueeze(0)  # [L, 1], [1, L]
        mask = self.example_mask(context)  # [B, 1, L, L]
        if mask is None:
            mask = self.mask_pattern.visible(query, key)  # [L, L]
        if context.real is not None:
            mask = mask & context.real[:, None, None, :]  # [B, 1, L, L]
        bias = None
        if self.bias is not None:
            classes = [] if context.token_classes is None else [context.token_classes] * 2
            bias = self.bias(q, self.bias.index(query, key), *classes)  # [B, H, L, L]
        return self.pair_weights(q, self.for_queries(k), mask, bias)

    def pair_weights(self, q: Tensor, k: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        """Weights of keys for queries: q [B, H, Q, E], k [B, H, K, E] -> [B, H, Q, K].

        mask: bool, True where the key is visible; bias: before the scaling, or None; both
        broadcast. Zero where no key is visible. A layer that replaces this method, or
        `example_mask`, computes its weights by it and holds all pairs of positions in memory: the
        other backends know softmax alone.
        """
        return attention_weights(q, k, mask, bias)

    def example_mask(self, context: ForwardContext) -> Tensor | None:
        """Pairs that each example sees in place of the pattern's, in passes over a whole sequence.

        Bool [B, 1, L, L]; None for the pattern. Steps follow the pattern, so a key that a query
        sees after it must belong to the prefix that is read at once.
        """
        return None

    @property
    def by_definition(self) -> bool:
        """Whether a subclass computes the weights of pairs by a rule of its own."""
        return any(
            getattr(type(self), name) is not getattr(MultiHeadAttention, name)
            for name in ("pair_weights", "example_mask")
        )

    def for_queries(self, x: Tensor) -> Tensor:
        """Keys or values for each head of queries: [B, G, K, E] -> [B, H, K, E]."""
        shared = self.n_heads // x.shape[1]
        return x if shared == 1 else x.repeat_interleave(shared, 1)

    def shared_context(self, x: Tensor, context: ForwardContext) -> ForwardContext:
        """The context of a pass over x [B, L, D] with everything that all layers of a stack share.

        Raises ValueError where the bias reads tokens and the context has none.
        """
        rotation = context.rotation
        if self.rotary is not None and rotation is None:
            positions = torch.arange(x.shape[1], device=x.device)  # [L]
            rotation = self.rotary.rotation(positions).to(x.dtype)  # [2, L, E]
        return replace(context, rotation=rotation, token_classes=self.token_classes(context))

    def init_cache(self, batch: int, max_length: int, lookahead: int = 0) -> LayerCache:
        """Storage to decode at most `max_length` positions of `batch` sequences.

        lookahead: positions that a step may read beyond its first, or go back and overwrite.
        """
        n_slots = self.mask_pattern.layout.n_slots(max_length, lookahead)
        # SDPA reads a few queries' keys several times slower in bfloat16 than in float32 on a CPU.
        dtype, device = self.placeholder.dtype, self.placeholder.device
        if dtype == torch.bfloat16 and device.type == "cpu":
            dtype = torch.float32
        size = (batch, self.n_key_heads, n_slots, self.d_head)
        cache = {name: torch.zeros(size, dtype=dtype, device=device) for name in ("key", "value")}
        if self.uses_token_ids:
            cache["token_class"] = torch.zeros(batch, n_slots, dtype=torch.int64, device=device)
        return cache

    def cache_view(self, cache: LayerCache, length: int) -> LayerCache:
        """Views of the part of the cache that holds the first `length` positions."""
        filled = self.mask_pattern.layout.filled_length(length, cache["key"].shape[2])
        views = {name: cache[name][:, :, :filled] for name in ("key", "value")}
        if self.uses_token_ids:
            views["token_class"] = cache["token_class"][:, :filled]
        return cache | views

    def step_context(self, positions: Tensor, cache: LayerCache) -> StepContext:
        """Context of a step at positions int64 [P] for all layers; of several steps: [..., P]."""
        keys, layout = cache["key"], self.mask_pattern.layout
        n_slots = keys.shape[2]
        key = layout.slot_positions(positions, n_slots).unsqueeze(-2)  # [..., 1, S]
        query = positions.unsqueeze(-1)  # [..., P, 1]
        visible = self._visible(query, key, cache)
        mask = torch.zeros(visible.shape, dtype=keys.dtype, device=keys.device)
        rotation = None
        if self.rotary is not None:
            rotation = self.rotary.rotation(positions).to(self.placeholder.dtype)
        return StepContext(
            positions=positions,
            slots=layout.slots(positions, n_slots),
            mask=mask.masked_fill_(~visible, -torch.inf),  # [..., P, S]
            relative_index=() if self.bias is None else self.bias.index(query, key),  # [..., P, S]
            rotation=rotation,  # [..., 2, P, E]
        )

    def _visible(self, query: Tensor, key: Tensor, cache: LayerCache) -> Tensor:
        """Whether queries [..., P, 1] see the keys of the slots [..., 1, S]: [..., P, S]."""
        return self.mask_pattern.visible(query, key.clamp(min=0)) & (key >= 0)

    def step(self, x: Tensor, cache: LayerCache, context: StepContext) -> Tensor:
        """One position, or P consecutive ones: x [B, P, D] -> [B, P, D].

        P above 1, or a position that was already read, is allowed only within the lookahead.
        """
        dtype = cache["key"].dtype
        q, k, v = (part.to(dtype) for part in self.heads(x, context.rotation))  # [B, H, P, E]
        keys = cache["key"].index_copy_(2, context.slots, k)  # [B, H, S, E]
        values = cache["value"].index_copy_(2, context.slots, v)  # [B, H, S, E]
        mask = context.mask  # [P, S]
        bias = None
        if self.bias is not None:
            classes = []
            if (own := self.token_classes(context)) is not None:
                classes = [own, cache["token_class"].index_copy_(1, context.slots, own)]  # [B, S]
            bias = self.bias(q, context.relative_index, *classes)  # [B, H, P, S]
            mask = mask.add(bias, alpha=self.d_head**-0.5)
        if self.by_definition:
            weights = self.pair_weights(q, self.for_queries(keys), mask > -torch.inf, bias)
            return self.merge((weights @ self.for_queries(values)).to(x.dtype))
        grouped = self.n_key_heads != self.n_heads
        y = F.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, enable_gqa=grouped
        )  # [B, H, P, E]
        return self.merge(y.to(x.dtype))

    def heads(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, rotated: x [B, L, D], rotation [2, L, E] or None."""
        if self.rotary is not None and type(self).project is MultiHeadAttention.project:
            heads = self._projected(x)  # [3, B, H, L, E]
            q, k = self.rotary(heads[:2], rotation).unbind(0)  # both in the same kernel launches
            return q, k, heads[2]
        q, k, v = self.project(x)
        if self.rotary is not None:
            q, k = self.rotary(q, rotation), self.rotary(k, rotation)
        return q, k, v

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, L, E], keys and values [B, G, L, E] of x [B, L, D]; G is n_key_heads."""
        q, k, v = self._projected(x).unbind(0)
        return q, k, v

    def _projected(self, x: Tensor) -> Tensor:
        """Heads of queries, keys and values: x [B, L, D] -> [3, B, H, L, E]."""
        heads: Tensor = rearrange(
            self.qkv_proj(x), "b l (three h e) -> three b h l e", three=3, h=self.n_heads
        )
        return heads

    def token_classes(self, context: ForwardContext | StepContext) -> Tensor | None:
        """Classes of the tokens that the bias reads, int64 [B, L]; None for a bias without them."""
        if not isinstance(self.bias, TokenBias):
            return None
        if context.token_ids is None:
            raise ValueError("this attention reads tokens and needs token ids in its context")
        if context.token_classes is not None:
            return context.token_classes
        return self.bias.token_classes(context.token_ids)

    def fill(self, cache: LayerCache, k: Tensor, v: Tensor, context: ForwardContext) -> None:
        """Write the keys and values [B, H, L, E] of positions 0..L-1 into the cache."""
        if context.real is not None:
            raise ValueError("prefill does not support padding: all prefixes have one length")
        n_slots = cache["key"].shape[2]
        positions = torch.arange(k.shape[2], device=k.device)  # [L]
        # Of the positions that share a slot the last one stays, as it would after L steps. Slots
        # that are still empty copy position 0; `slot_positions` keeps them hidden.
        slots = self.mask_pattern.layout.slots(positions, n_slots)  # [L]
        last = torch.zeros(n_slots, dtype=torch.int64, device=k.device)  # [S]
        last.scatter_reduce_(0, slots, positions, "amax")
        cache["key"].copy_(k.index_select(2, last))
        cache["value"].copy_(v.index_select(2, last))
        if context.token_classes is not None:
            cache["token_class"].copy_(context.token_classes.index_select(1, last))

    def merge(self, y: Tensor) -> Tensor:
        """Join the heads and project: [B, H, L, E] -> [B, L, D]."""
        merged: Tensor = self.out_proj(rearrange(y, "b h l e -> b l (h e)"))
        return merged


def head_width(d_model: int, n_heads: int) -> int:
    """Width of a head; ValueError where the number of heads does not divide the width."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model, got {n_heads} heads at width {d_model}")
    return d_model // n_heads


@dataclass(frozen=True)
class AttentionConfig(Checked, ABC):
    """Settings of one variant, in the variant's own file."""

    causal_only: ClassVar[bool] = False
    """Whether an encoder, which reads in both directions, cannot use the variant."""
    layer_class: ClassVar[type[MultiHeadAttention]] = MultiHeadAttention
    """Attention that `build` makes."""

    @abstractmethod
    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        """Make the pattern that a stack's layers share; ValueError for a shape it cannot serve.

        shape: extent of each axis of the sequence, slowest first: (2048,) for text and music,
        (32, 32, 3) for an RGB image.
        """

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> RelativeBias | None:
        """Make the relative bias of one layer; None for none."""
        return None

    def build(
        self,
        d_model: int,
        n_heads: int,
        pattern: MaskPattern,
        *,
        dropout: float = 0.0,
        rotary: RotaryEmbedding | None = None,
    ) -> MultiHeadAttention:
        """Make the attention of one layer under a pattern of `mask_pattern`.

        Raises ValueError for rotary positions with a relative bias: it would read rotated queries.
        """
        bias = self.relative_bias(n_heads, head_width(d_model, n_heads), pattern.causal)
        if rotary is not None and bias is not None and not isinstance(bias, ScalarBias):
            name = type(self).__name__
            raise ValueError(f"{name} attention cannot be combined with rotary positions")
        return self.layer_class(d_model, n_heads, pattern, bias, dropout=dropout, rotary=rotary)

    def order_of(self, shape: tuple[int, ...]) -> GenerationOrder:
        """Order of generation of this variant on a grid of this shape."""
        return raster(shape)
