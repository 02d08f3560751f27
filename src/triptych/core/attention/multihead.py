"""Multi-head attention under a mask pattern; shared by every softmax variant."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.backends.dispatch import attend
from triptych.core.attention.base import LayerCache, SelfAttention
from triptych.core.attention.context import (
    NO_CONTEXT,
    ForwardContext,
    StepContext,
    require_token_ids,
)
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.reference import pattern_attention


class MultiHeadAttention(SelfAttention):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2).

    One matrix projects queries, keys and values. The pattern says which keys a query sees. Raises
    ValueError where the number of heads does not divide the width.
    """

    def __init__(self, d_model: int, n_heads: int, pattern: MaskPattern) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.d_head = head_width(d_model, n_heads)
        self.pattern = pattern
        self.uses_token_ids = pattern.uses_token_ids
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        # A scalar that follows the dtype and the device, also where the matrices are int8.
        self.register_buffer("placeholder", torch.zeros(()), persistent=False)

    placeholder: Tensor

    def forward(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        q, k, v = self._heads(x, torch.arange(x.shape[1], device=x.device))
        if self.uses_token_ids:
            q, k = self.pattern.token_features(q, k, require_token_ids(context))
        dropout = self.dropout if self.training else 0.0
        y = attend(self.pattern, q, k, v, padding=context.padding, dropout=dropout)
        return self._merge(y)

    def reference(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        q, k, v = self._heads(x, torch.arange(x.shape[1], device=x.device))
        return self._merge(self._reference(q, k, v, context))

    def weights(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """Attention weights from the definition, without dropout: x [B, L, D] -> [B, H, L, L].

        Rows add up to 1, or to 0 for a query without a visible key.
        """
        q, k, v = self._heads(x, torch.arange(x.shape[1], device=x.device))
        # With the rows of the identity as values the output is the weights themselves.
        identity = torch.eye(x.shape[1], dtype=v.dtype, device=x.device).expand(
            *v.shape[:2], -1, -1
        )
        return self._reference(q, k, identity, context)

    def init_cache(self, batch: int, max_length: int, lookahead: int = 0) -> LayerCache:
        n_slots = self.pattern.n_slots(max_length, lookahead)
        size = (batch, self.n_heads, n_slots, self.d_head)
        # SDPA reads a few queries' keys several times slower in bfloat16 than in float32 on a CPU.
        dtype, device = self.placeholder.dtype, self.placeholder.device
        if dtype == torch.bfloat16 and device.type == "cpu":
            dtype = torch.float32
        cache = {name: torch.zeros(size, dtype=dtype, device=device) for name in ("key", "value")}
        if self.uses_token_ids:
            none = torch.full((batch, n_slots), -1, device=device)
            cache["token_class"] = self.pattern.token_classes(none)
        return cache

    def cache_view(self, cache: LayerCache, length: int) -> LayerCache:
        filled = self.pattern.filled_length(length, cache["key"].shape[2])
        views = {name: cache[name][:, :, :filled] for name in ("key", "value")}
        if self.uses_token_ids:
            views["token_class"] = cache["token_class"][:, :filled]
        return cache | views

    def prefill(self, x: Tensor, cache: LayerCache, context: ForwardContext = NO_CONTEXT) -> Tensor:
        if context.padding is not None:
            raise ValueError("prefill does not support padding: all prefixes have one length")
        positions = torch.arange(x.shape[1], device=x.device)  # [P]
        q, k, v = self._heads(x, positions)
        n_slots = cache["key"].shape[2]
        # Of the positions that share a slot the last one stays, as it would after P steps. Slots
        # that are still empty copy position 0; `slot_positions` keeps them hidden.
        last = torch.zeros(n_slots, dtype=torch.int64, device=x.device)  # [S]
        last.scatter_reduce_(0, self.pattern.slot(positions, n_slots), positions, "amax")
        cache["key"].copy_(k.index_select(2, last))
        cache["value"].copy_(v.index_select(2, last))
        if self.uses_token_ids:
            token_ids = require_token_ids(context)
            cache["token_class"].copy_(self.pattern.token_classes(token_ids).index_select(1, last))
            q, k = self.pattern.token_features(q, k, token_ids)
        return self._merge(attend(self.pattern, q, k, v))

    def step_context(self, positions: Tensor, cache: LayerCache) -> StepContext:
        keys = cache["key"]
        n_slots = keys.shape[2]
        key = self.pattern.slot_positions(positions, n_slots).unsqueeze(-2)  # [..., 1, S]
        query = positions.unsqueeze(-1)  # [..., P, 1]
        visible = self.pattern.visible(query, key.clamp(min=0)) & (key >= 0)  # [..., P, S]
        mask = torch.zeros(visible.shape, dtype=keys.dtype, device=keys.device)
        return StepContext(
            positions=positions,
            slots=self.pattern.slot(positions, n_slots),
            mask=mask.masked_fill_(~visible, -torch.inf),
            relative_index=self.pattern.relative_index(query, key),  # [..., P, S]
        )

    def step(self, x: Tensor, cache: LayerCache, context: StepContext) -> Tensor:
        dtype = cache["key"].dtype
        q, k, v = (part.to(dtype) for part in self._heads(x, context.positions))  # [B, H, P, E]
        keys = cache["key"].index_copy_(2, context.slots, k)  # [B, H, S, E]
        values = cache["value"].index_copy_(2, context.slots, v)  # [B, H, S, E]
        mask = context.mask  # [P, S]
        bias = self.pattern.relative_bias(q, context.relative_index)
        if bias is not None:
            mask = mask + bias * self.d_head**-0.5  # [B, H, P, S]
        if self.uses_token_ids:
            classes = self.pattern.token_classes(require_token_ids(context))  # [B, P]
            kept = cache["token_class"].index_copy_(1, context.slots, classes)  # [B, S]
            mask = mask + self.pattern.token_bias(q, classes, kept) * self.d_head**-0.5
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)  # [B, H, P, E]
        return self._merge(y.to(x.dtype))

    def sharing_key(self) -> Hashable:
        return self.pattern.sharing_key()

    def _heads(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x [B, L, D] at positions int64 [L]: 3 x [B, H, L, E]."""
        q, k, v = rearrange(
            self.qkv_proj(x), "b l (three h e) -> three b h l e", three=3, h=self.n_heads
        ).unbind(0)  # 3 x [B, H, L, E]
        if self.rotary is not None:
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        return q, k, v

    def _reference(self, q: Tensor, k: Tensor, v: Tensor, context: ForwardContext) -> Tensor:
        bias = None
        if self.uses_token_ids:
            classes = self.pattern.token_classes(require_token_ids(context))
            bias = self.pattern.token_bias(q, classes, classes)  # [B, H, L, L]
        return pattern_attention(self.pattern, q, k, v, padding=context.padding, token_bias=bias)

    def _merge(self, y: Tensor) -> Tensor:
        """Join the heads and project: [B, H, L, E] -> [B, L, D]."""
        merged: Tensor = self.out_proj(rearrange(y, "b h l e -> b l (h e)"))
        return merged


def head_width(d_model: int, n_heads: int) -> int:
    """Width of a head; ValueError where the number of heads does not divide the width."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model, got {n_heads} heads at width {d_model}")
    return d_model // n_heads
