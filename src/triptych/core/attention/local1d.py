"""Local 1-D attention: runs of queries over their own run and a memory before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.interface import AttentionConfig, Example
from triptych.core.attention.softmax import Pattern, SoftmaxAttention, attend


@dataclass(frozen=True)
class Local1D(AttentionConfig):
    """Runs of positions read their own run and some positions before it.

    Image Transformer (Parmar et al. 2018), section 3.3, local 1D; causal only.
    """

    block: int = 256
    """Length of a run of queries, in positions."""
    memory: int = 256
    """How many positions before its run a query reads, in positions."""

    def __post_init__(self) -> None:
        if self.block < 1 or self.memory < 0:
            raise ValueError(
                "local 1-D attention needs block >= 1 and memory >= 0, "
                f"got block {self.block} and memory {self.memory}"
            )

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> SoftmaxAttention:
        if not causal:
            raise ValueError("local 1-D attention is causal; an encoder cannot use it")
        return SoftmaxAttention(d_model, n_heads, Local1DPattern(self.block, self.memory))

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls(block=4, memory=4), (16,)),
            Example(cls(block=4, memory=6), (15,)),  # neither divides the length
            Example(cls(block=3, memory=0), (10,)),
            Example(cls(block=32, memory=8), (13,)),
            Example(cls(block=6, memory=6), (4, 3, 3)),
        ]


class Local1DPattern(Pattern):
    """Keys of the query's own run and of `memory` positions before it, none later."""

    def __init__(self, block: int, memory: int) -> None:
        super().__init__()
        self.block = block
        self.memory = memory

    def allowed(self, query: Tensor, key: Tensor) -> Tensor:
        start = query // self.block * self.block
        return (key <= query) & (key >= start - self.memory)

    def n_slots(self, max_length: int) -> int:
        return min(self.block + self.memory, max_length)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        batch, heads, length, _ = q.shape
        block, memory = self.block, self.memory
        n_runs = -(-length // block)
        tail = n_runs * block - length
        q = rearrange(F.pad(q, (0, 0, 0, tail)), "b h (n q) e -> n (b h) q e", n=n_runs)
        k, v = (
            rearrange(
                F.pad(x, (0, 0, memory, tail)).unfold(2, block + memory, block),
                "b h n e k -> n (b h) k e",
            )
            for x in (k, v)
        )  # [N, B H, K, E]
        query = torch.arange(n_runs * block, device=q.device).view(n_runs, block, 1)
        key = query[:, :1] + torch.arange(block + memory, device=q.device) - memory  # [N, 1, K]
        mask = self.allowed(query, key) & (key >= 0) & ((key < length) | (query >= length))
        mask = mask.unsqueeze(1)  # [N, 1, Q, K]
        if padding is not None:
            hidden = F.pad(padding, (memory, tail)).unfold(1, block + memory, block)  # [B, N, K]
            hidden = hidden.transpose(0, 1).repeat_interleave(heads, dim=1)  # [N, B H, K]
            mask = mask & ~hidden.unsqueeze(2)  # [N, B H, Q, K]
        y = attend(q, k, v, mask=mask)  # [N, B H, Q, E]
        y = rearrange(y, "n (b h) q e -> b h (n q) e", b=batch)
        return y[:, :, :length]  # [B, H, L, E]
