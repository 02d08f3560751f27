"""What the softmax variants share: projections, key and value slots, steps and prefill.

A variant adds a `MaskPattern`: which keys a query reads, as a function of their positions.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.backends.dispatch import attend
from triptych.core.attention.base import LayerCache, SelfAttention
from triptych.core.attention.context import Place, apart
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.reference import pattern_attention


class MultiHeadAttention(SelfAttention):
    """Multi-head scaled dot-product attention under a pattern (Vaswani et al. 2017, section 3.2).

    The projections of queries, keys and values are one matrix. Raises ValueError where the heads
    do not divide the width.
    """

    def __init__(self, d_model: int, n_heads: int, pattern: MaskPattern) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.d_head = head_width(d_model, n_heads)
        self.pattern = pattern
        self.reads_symbols = pattern.uses_token_ids
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        # Follows the module's dtype and device.
        self.register_buffer("like", torch.zeros(()), persistent=False)

    like: Tensor

    def forward(
        self, x: Tensor, padding: Tensor | None = None, symbols: Tensor | None = None
    ) -> Tensor:
        q, k, v = self._heads(x)
        q, k = self._with_symbols(q, k, symbols)
        dropout = self.dropout if self.training else 0.0
        return self._merge(attend(self.pattern, q, k, v, padding=padding, dropout=dropout))

    def reference(
        self, x: Tensor, padding: Tensor | None = None, symbols: Tensor | None = None
    ) -> Tensor:
        q, k, v = self._heads(x)
        bias = self._symbol_bias(q, symbols)
        y = pattern_attention(self.pattern, q, k, v, padding=padding, token_bias=bias)
        return self._merge(y)

    def init_cache(self, batch: int, max_length: int, ahead: int = 0) -> LayerCache:
        slots = self.pattern.n_slots(max_length, ahead)
        size = (batch, self.n_heads, slots, self.d_head)
        state = {"key": self.like.new_zeros(size), "value": self.like.new_zeros(size)}
        if self.reads_symbols:
            nothing = self.like.new_full((batch, slots), -1, dtype=torch.int64)
            state["symbol"] = self.pattern.token_classes(nothing)
        return state

    def narrow(self, state: LayerCache, length: int) -> LayerCache:
        n_slots = state["key"].shape[2]
        used = self.pattern.filled_length(length, n_slots)
        if used == n_slots:
            return state
        views = {name: state[name].narrow(2, 0, used) for name in ("key", "value")}
        if self.reads_symbols:
            views["symbol"] = state["symbol"].narrow(1, 0, used)
        return state | views

    def prefill(self, x: Tensor, state: LayerCache, symbols: Tensor | None = None) -> Tensor:
        q, k, v = self._heads(x)
        n_slots = state["key"].shape[2]
        positions = torch.arange(x.shape[1], device=x.device)  # [P]
        # Of all positions that share a slot the last one stays, as it would after P steps.
        last = torch.zeros(n_slots, dtype=torch.int64, device=x.device)  # [S]
        last.scatter_reduce_(0, self.pattern.slot(positions, n_slots), positions, "amax")
        # Slots that are still empty copy position 0, and `held` keeps them unseen.
        state["key"].copy_(k.index_select(2, last))
        state["value"].copy_(v.index_select(2, last))
        if self.reads_symbols:
            state["symbol"].copy_(self.pattern.token_classes(told(symbols)).index_select(1, last))
        q, k = self._with_symbols(q, k, symbols)
        return self._merge(attend(self.pattern, q, k, v))

    def kind(self) -> Hashable:
        return self.pattern.sharing_key()

    def place(self, position: Tensor, state: LayerCache) -> Place:
        return self._place(position.view(-1), state)  # a view: indexing never syncs

    def places(self, positions: Tensor, state: LayerCache) -> list[Place]:
        return apart(self._place(positions.unsqueeze(1), state))

    def _place(self, query: Tensor, state: LayerCache) -> Place:
        """query int64 [..., P]: steps of P positions each, of which none has been written."""
        key = state["key"]
        n_slots = key.shape[2]
        read = self.pattern.read_slots(query, n_slots)
        slots = torch.arange(n_slots, device=key.device) if read is None else read  # [..., W]
        held = self.pattern.slot_positions(query, slots, n_slots).unsqueeze(-2)  # [..., 1, W]
        rows = query.unsqueeze(-1)  # [..., P, 1]
        visible = self.pattern.visible(rows, held.clamp(min=0)) & (held >= 0)  # [..., P, W]
        # Added to the logits; the position itself is always visible, so no row is all -inf.
        mask = torch.zeros(visible.shape, dtype=key.dtype, device=key.device)
        return Place(
            self.pattern.slot(query, n_slots),
            read,
            mask.masked_fill_(~visible, -torch.inf),
            self.pattern.relative_index(rows, held),  # [..., P, W]
        )

    def step(
        self,
        x: Tensor,
        position: Tensor,
        state: LayerCache,
        place: Place | None = None,
        symbols: Tensor | None = None,
    ) -> Tensor:
        place = self.place(position, state) if place is None else place
        slot, read, mask, relation, start, n_read = place
        keys, values = state["key"], state["value"]
        qkv = self.qkv_proj(x)  # [B, P, 3 D]
        if qkv.dtype != keys.dtype:  # to ask is cheaper than `to`
            qkv = qkv.to(keys.dtype)
        q, k, v = self._split(qkv)
        if self.rotary is not None:
            q, k = self.rotary(q, position.view(-1)), self.rotary(k, position.view(-1))
        if start is None:
            keys.index_copy_(2, slot, k)
            values.index_copy_(2, slot, v)
        else:  # in a third of the time of index_copy_ with 64 rows
            keys.narrow(2, start, 1).copy_(k)
            values.narrow(2, start, 1).copy_(v)
        if read is not None:
            keys = keys.index_select(2, read)  # [B, H, W, E]
            values = values.index_select(2, read)  # [B, H, W, E]
        elif n_read is not None:
            keys, values = keys.narrow(2, 0, n_read), values.narrow(2, 0, n_read)  # [B, H, W, E]
        bias = self.pattern.relative_bias(q, relation)
        if bias is not None:
            mask = plus(mask, bias * self.d_head**-0.5)  # [B, H, P, W]
        if self.reads_symbols:
            symbols = self.pattern.token_classes(told(symbols))
            kept = state["symbol"].index_copy_(1, slot, symbols)  # [B, S]
            if read is not None:
                kept = kept.index_select(1, read)  # [B, W]
            elif n_read is not None:
                kept = kept.narrow(1, 0, n_read)  # [B, W]
            # For few queries this is little; wider keys would have to be copied at every step.
            mask = plus(mask, self.pattern.token_bias(q, symbols, kept) * self.d_head**-0.5)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)  # [B, H, P, E]
        return self._merge(y if y.dtype == x.dtype else y.to(x.dtype))

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self._split(self.qkv_proj(x))
        if self.rotary is not None:
            positions = torch.arange(x.shape[1], device=x.device)  # [L]
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        return q, k, v

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, _ = qkv.shape
        heads = qkv.view(batch, length, 3, self.n_heads, self.d_head)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)  # 3 x [B, H, L, E]
        return q, k, v

    def _symbol_bias(self, q: Tensor, symbols: Tensor | None) -> Tensor | None:
        if not self.reads_symbols:
            return None
        noted = self.pattern.token_classes(told(symbols))
        return self.pattern.token_bias(q, noted, noted)

    def _with_symbols(self, q: Tensor, k: Tensor, symbols: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.pattern.token_features(q, k, told(symbols)) if self.reads_symbols else (q, k)

    def _merge(self, y: Tensor) -> Tensor:
        merged: Tensor = self.out_proj(y.transpose(1, 2).flatten(2))  # [B, L, D]
        return merged

    def weights(
        self, x: Tensor, padding: Tensor | None = None, symbols: Tensor | None = None
    ) -> Tensor:
        """How much each query reads of each key: x [B, L, D] -> [B, H, L, L], by the definition.

        Rows add up to 1, or to 0 where a query sees no key; without dropout.
        """
        q, k, _ = self._heads(x)
        length = x.shape[1]
        # With the rows of the identity as values, what a query reads is its weights themselves.
        one_each = torch.eye(length, dtype=q.dtype, device=x.device).expand(*q.shape[:2], -1, -1)
        bias = self._symbol_bias(q, symbols)
        return pattern_attention(self.pattern, q, k, one_each, padding=padding, token_bias=bias)


def plus(mask: Tensor | None, bias: Tensor) -> Tensor:
    """What is added to the logits, with no mask where all slots are visible."""
    return bias if mask is None else mask + bias


def told(symbols: Tensor | None) -> Tensor:
    """The symbols; ValueError where the caller has given none."""
    if symbols is None:
        raise ValueError("this attention relates symbols and must be told them")
    return symbols


def head_width(d_model: int, n_heads: int) -> int:
    """Width of a head; ValueError where the heads do not divide the width of the model."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model, got {n_heads} heads at width {d_model}")
    return d_model // n_heads
