"""Cross-attention: the decoder reads the encoder's output."""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor, nn

from triptych.core.attention.backends.sdpa import attend_by_sdpa
from triptych.core.attention.base import LayerCache
from triptych.core.attention.multihead import head_width
from triptych.core.attention.reference import dense_attention


class CrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another (Vaswani et al. 2017, 3.2.3).

    In decoding the keys and values of the memory are projected once per sentence (`remember`)
    and read in every step; their padding travels with them. A row whose memory is all padding
    gets zeros.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = 0.0
        """Share of the weights that training drops."""
        head_width(d_model, n_heads)
        self.q_proj = nn.Linear(d_model, d_model)
        self.kv_proj = nn.Linear(d_model, 2 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def remember(self, memory: Tensor, padding: Tensor | None = None) -> LayerCache:
        """memory [B, K, D], padding [B, K] True on padding -> keys and values [B, H, K, E]."""
        k, v = rearrange(
            self.kv_proj(memory), "b k (two h e) -> two b h k e", two=2, h=self.n_heads
        ).unbind(0)  # 2 x [B, H, K, E]
        state = {"memory_key": k, "memory_value": v}
        if padding is not None:
            state["memory_padding"] = padding
        return state

    def read(self, x: Tensor, state: LayerCache) -> Tensor:
        """x reads what `remember` kept of B sentences -> the form of x.

        x [B, L, D], or [B N, L, D] with the N hypotheses of a sentence in a row: they are so many
        more queries to the sentence's keys and values, which nobody copies N times.
        """
        keys, values = state["memory_key"], state["memory_value"]  # [B, H, K, E]
        times = x.shape[0] // keys.shape[0]
        q = rearrange(self.q_proj(x), "(b n) l (h e) -> b h (n l) e", n=times, h=self.n_heads)
        padding = state.get("memory_padding")
        dropout = self.dropout if self.training else 0.0
        y = attend_by_sdpa(q, keys, values, padding=padding, dropout=dropout)  # [B, H, N L, E]
        merged = rearrange(y, "b h (n l) e -> (b n) l (h e)", n=times)  # [B N, L, D]
        out: Tensor = self.out_proj(merged)
        return out

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        """x [B, L, D] reads memory [B, K, D], whose padding [B, K] is True -> [B, L, D]."""
        return self.read(x, self.remember(memory, padding))

    def weights(self, x: Tensor, state: LayerCache) -> Tensor:
        """How much each query of `read` reads of each key, by the definition: [B, H, L, K].

        x [B, L, D], a row a sentence. Rows add up to 1, or to 0 where all of the memory is padding;
        without dropout.
        """
        keys, padding = state["memory_key"], state.get("memory_padding")
        q = rearrange(self.q_proj(x), "b l (h e) -> b h l e", h=self.n_heads)
        mask = None if padding is None else ~padding[:, None, None, :]  # [B, 1, 1, K]
        # With the rows of the identity as values, what a query reads is its weights themselves.
        n_keys = keys.shape[2]
        one_each = torch.eye(n_keys, dtype=q.dtype, device=x.device).expand(*q.shape[:2], -1, -1)
        return dense_attention(q, keys, one_each, mask)
