"""What the softmax variants share: projections, key and value slots, and the dense oracle.

A variant adds a `Pattern`: which keys a query reads, as a function of their positions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.interface import LayerState, SelfAttention


class Pattern(nn.Module, ABC):
    """Which keys a query reads and where a position's key is kept, as functions of positions.

    Positions are int64 tensors that broadcast against each other; a key at position -1 is an
    empty slot and is masked by whoever calls.
    """

    @abstractmethod
    def allowed(self, query: Tensor, key: Tensor) -> Tensor:
        """The definition: True where the query at one position reads the key at the other."""

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        """The fast path for positions 0..L-1: q, k, v [B, H, L, E] -> [B, H, L, E]."""

    def bias(self, q: Tensor, query: Tensor, key: Tensor) -> Tensor | None:
        """What is added to q . k before the scaling, if anything.

        q [B, H, Q, E]; query [B, Q] and key [B, K] (or 1 in place of B) -> [B, H, Q, K].
        """
        return None

    def n_slots(self, max_length: int) -> int:
        """How many keys are kept while decoding at most `max_length` positions."""
        return max_length

    def slot(self, position: Tensor, n_slots: int) -> Tensor:
        """Where a position's key is kept: int64, of the form of `position`; a ring by default."""
        return position % n_slots

    def read(self, position: Tensor, n_slots: int) -> Tensor | None:
        """Slots that the query at `position` (int64 [1]) reads: int64 [W]; None for all."""
        return None


class SoftmaxAttention(SelfAttention):
    """Multi-head scaled dot-product attention under a pattern (Vaswani et al. 2017, section 3.2).

    The projections of queries, keys and values are one matrix. Raises ValueError where the heads
    do not divide the width.
    """

    def __init__(self, d_model: int, n_heads: int, pattern: Pattern) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.d_head = head_width(d_model, n_heads)
        self.pattern = pattern
        self.project_in = nn.Linear(d_model, 3 * d_model)
        self.project_out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        q, k, v = self._heads(x)
        return self._merge(self.pattern.attend(q, k, v, padding))

    def reference(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        q, k, v = self._heads(x)
        positions = torch.arange(x.shape[1], device=x.device).unsqueeze(0)  # [1, L]
        return self._merge(dense(self.pattern, q, k, v, positions, positions, padding))

    def empty_state(self, batch: int, max_length: int) -> LayerState:
        weight = self.project_in.weight
        slots = self.pattern.n_slots(max_length)
        size = (batch, self.n_heads, slots, self.d_head)
        return {
            "key": weight.new_zeros(size),
            "value": weight.new_zeros(size),
            "position": torch.full((batch, slots), -1, device=weight.device),
        }

    def prefill(self, x: Tensor, state: LayerState) -> Tensor:
        q, k, v = self._heads(x)
        n_slots = state["key"].shape[2]
        positions = torch.arange(x.shape[1], device=x.device)  # [P]
        # Of all positions that share a slot the last one stays, as it would after P steps.
        held = torch.full((n_slots,), -1, device=x.device)  # [S]
        slots = self.pattern.slot(positions, n_slots)  # [P]
        held.scatter_reduce_(0, slots, positions, "amax")
        source = held.clamp(min=0)  # empty slots copy position 0; their -1 keeps them unseen
        state["key"].copy_(k.index_select(2, source))
        state["value"].copy_(v.index_select(2, source))
        state["position"].copy_(held.expand_as(state["position"]))
        return self._merge(self.pattern.attend(q, k, v, None))

    def step(self, x: Tensor, position: Tensor, state: LayerState) -> Tensor:
        q, k, v = self._heads(x)
        n_slots = state["key"].shape[2]
        query = position.view(1)  # a view of one element: indexing with it never syncs
        slot = self.pattern.slot(query, n_slots)  # [1]
        state["key"].index_copy_(2, slot, k.to(state["key"].dtype))
        state["value"].index_copy_(2, slot, v.to(state["value"].dtype))
        state["position"].index_copy_(1, slot, query.expand(x.shape[0], 1))
        keys, values, held = state["key"], state["value"], state["position"]
        read = self.pattern.read(query, n_slots)
        if read is not None:
            keys = keys.index_select(2, read)  # [B, H, W, E]
            values = values.index_select(2, read)  # [B, H, W, E]
            held = held.index_select(1, read)  # [B, W]
        return self._merge(dense(self.pattern, q, keys, values, query.unsqueeze(0), held, None))

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = rearrange(
            self.project_in(x), "b l (three h e) -> three b h l e", three=3, h=self.n_heads
        ).unbind(0)  # 3 x [B, H, L, E]
        return q, k, v

    def _merge(self, y: Tensor) -> Tensor:
        merged: Tensor = self.project_out(rearrange(y, "b h l e -> b l (h e)"))  # [B, L, D]
        return merged


def head_width(d_model: int, n_heads: int) -> int:
    """Width of a head; ValueError where the heads do not divide the width of the model."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model, got {n_heads} heads at width {d_model}")
    return d_model // n_heads


def dense(
    pattern: Pattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query: Tensor,
    key: Tensor,
    padding: Tensor | None,
) -> Tensor:
    """Attention by the definition: all logits, the pattern's mask, softmax, weighted sum.

    q [B, H, Q, E], k and v [B, H, K, E]; query [B or 1, Q] and key [B or 1, K] are positions, a
    key of -1 is an empty slot; padding [B, K] True on padding -> [B, H, Q, E].
    """
    mask = pattern.allowed(query.unsqueeze(-1), key.unsqueeze(-2))  # [B, Q, K]
    mask = mask & (key >= 0).unsqueeze(-2)
    if padding is not None:
        mask = mask & ~padding.unsqueeze(-2)
    return products(q, k, v, mask.unsqueeze(1), pattern.bias(q, query, key))


def products(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None = None
) -> Tensor:
    """softmax((q k^T + bias) / sqrt(E)) v over the keys that the mask leaves.

    q [..., Q, E], k and v [..., K, E], mask (True = visible) and bias broadcast to [..., Q, K].
    A query whose keys are all masked gets zeros, in the gradient too.
    """
    logits = q @ k.mT  # [..., Q, K]
    if bias is not None:
        logits = logits + bias
    logits = logits / math.sqrt(q.shape[-1])
    if mask is None:
        return logits.softmax(-1) @ v  # [..., Q, E]
    # The lowest finite number instead of -inf: a row without any key has no NaN to pass on.
    hidden = ~mask
    weights = logits.masked_fill(hidden, torch.finfo(logits.dtype).min).softmax(-1)
    return weights.masked_fill(hidden, 0.0) @ v  # [..., Q, E]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where the key is not after the query: [L, L]."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def attend(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """The fast kernel for attention without a bias; the one place that chooses it.

    q [..., Q, E], k and v [..., K, E]; mask (True = visible) broadcasts to [..., Q, K]; `causal`
    is for Q = K and excludes a mask. The backward pass of scaled_dot_product_attention in bf16 is
    slow on a CPU: forward and backward, explicit products took 1/4.5 of its time at 24 keys, 1/2.4
    at 128, 1/1.3 at 256 and 1.5 times as long at 512 (one core with AVX512-BF16). In float32 it
    was ahead at every length.
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and k.shape[-2] <= 256:
        return products(q, k, v, causal_mask(q.shape[-2], q.device) if causal else mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
