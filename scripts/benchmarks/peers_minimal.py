"""The hand-written reference: a decoder on SDPA as one would write it in an afternoon."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, [B, H, longest, E]."""


class MinimalBlock(nn.Module):
    """Pre-norm block: one projection for q, k and v, causal SDPA, GELU feed-forward."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm = nn.LayerNorm(d_model)
        self.feed_norm = nn.LayerNorm(d_model)
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.widen = nn.Linear(d_model, 4 * d_model)
        self.narrow = nn.Linear(4 * d_model, d_model)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, _ = x.shape
        packed = self.qkv_proj(self.attention_norm(x)).view(batch, length, 3, self.n_heads, -1)
        q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)  # 3 x [B, H, L, E]
        return q, k, v

    def rest(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + self.out_proj(y.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.feed_norm(x))))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(x, F.scaled_dot_product_attention(*self.heads(x), is_causal=True))

    def step(self, x: Tensor, position: int, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = self.heads(x)  # [B, H, 1, E]
        keys[:, :, position : position + 1] = k
        values[:, :, position : position + 1] = v
        past = slice(0, position + 1)
        return self.rest(x, F.scaled_dot_product_attention(q, keys[:, :, past], values[:, :, past]))


class MinimalDecoder(nn.Module):
    """Token and position vectors, blocks, a norm, logits; a preallocated cache for decoding."""

    def __init__(
        self, vocabulary: int, length: int, *, d_model: int, n_layers: int, n_heads: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d_model)
        self.positions = nn.Embedding(length, d_model)
        self.blocks = nn.ModuleList(MinimalBlock(d_model, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, L] -> logits [B, L, V]."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]  # [B, L, D]
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))

    def cache(self, batch: int, length: int) -> Cache:
        d_model = self.tokens.weight.shape[1]
        heads = self.blocks[0].n_heads
        size = (batch, heads, length, d_model // heads)
        new = self.tokens.weight.new_zeros
        return [(new(size), new(size)) for _ in self.blocks]

    def step(self, token: Tensor, position: int, cache: Cache) -> Tensor:
        """Read token [B] at a position: logits of the next [B, V]."""
        x = (self.tokens(token) + self.positions.weight[position]).unsqueeze(1)  # [B, 1, D]
        for block, (keys, values) in zip(self.blocks, cache, strict=True):
            x = block.step(x, position, keys, values)
        return self.logits(self.norm(x[:, -1]))

    @torch.inference_mode()
    def generate(self, batch: int, length: int) -> Tensor:
        """Greedy tokens after one start token: [B, length]."""
        cache = self.cache(batch, length)
        token = torch.zeros(batch, dtype=torch.int64, device=self.tokens.weight.device)
        found = []
        for position in range(length):
            token = self.step(token, position, cache).argmax(-1)  # [B]
            found.append(token)
        return torch.stack(found, dim=1)
