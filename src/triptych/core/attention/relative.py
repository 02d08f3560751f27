"""Relative attention: a learned vector per distance and head, skewed instead of gathered."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.interface import AttentionConfig, Example
from triptych.core.attention.softmax import (
    Pattern,
    SoftmaxAttention,
    causal_mask,
    head_width,
    products,
)


@dataclass(frozen=True)
class Relative(AttentionConfig):
    """Learned distances (Huang et al. 2018, Music Transformer, sections 3.3 to 3.5)."""

    max_distance: int = 256
    """Longest distance with a vector of its own, in positions; farther ones share that vector."""
    window: int | None = None
    """How many positions a query reads, itself included, in positions; null for all of the past."""

    def __post_init__(self) -> None:
        if self.max_distance < 1:
            raise ValueError(f"max_distance must be at least 1, got {self.max_distance}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window must be at least 1 or null, got {self.window}")

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> SoftmaxAttention:
        pattern = RelativePattern(
            n_heads=n_heads,
            d_head=head_width(d_model, n_heads),
            max_distance=self.max_distance,
            window=self.window,
            causal=causal,
        )
        return SoftmaxAttention(d_model, n_heads, pattern)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls(max_distance=32), (13,)),  # table longer than the sequence
            Example(cls(max_distance=5), (13,)),  # beyond the longest distance
            Example(cls(max_distance=32, window=4), (13,)),  # a ring that the length does not fill
            Example(cls(max_distance=2, window=5), (15,)),
            Example(cls(max_distance=32, window=40), (13,)),
            Example(cls(max_distance=5), (13,), causal=False),
            Example(cls(max_distance=32, window=3), (13,), causal=False),
        ]


class RelativePattern(Pattern):
    """S_rel[i, j] = q_i . e[i - j] with one table of vectors e per head.

    The table is ordered by distance i - j: from 0 to the longest for a causal layer, from minus
    the longest to the longest for one that reads both ways. Distances beyond the longest use the
    longest one's vector (Shaw et al. 2018, section 3.2, clipping).
    """

    def __init__(
        self, *, n_heads: int, d_head: int, max_distance: int, window: int | None, causal: bool
    ) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.window = window
        self.causal = causal
        n_vectors = max_distance + 1 if causal else 2 * max_distance + 1
        self.table = nn.Parameter(torch.randn(n_heads, n_vectors, d_head) * d_head**-0.5)

    def allowed(self, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        visible = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if self.window is not None:
            visible = visible & (distance.abs() < self.window)
        return visible

    def bias(self, q: Tensor, query: Tensor, key: Tensor) -> Tensor:
        by_vector = q @ self.table.to(q.dtype).mT  # [B, H, Q, vectors]
        index = self._vector(query.unsqueeze(-1) - key.unsqueeze(-2))  # [B, Q, K]
        index = index.unsqueeze(1).expand(*by_vector.shape[:3], -1)  # [B, H, Q, K]
        return by_vector.gather(-1, index)

    def n_slots(self, max_length: int) -> int:
        return max_length if self.window is None else min(self.window, max_length)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        length = q.shape[2]
        if not self.causal:
            return self._both_ways(q, k, v, padding)
        if self.window is None or self.window >= length:
            relative = skew(q @ self._vectors(length - 1, 0, q).mT)  # [B, H, L, L]
            mask = causal_mask(length, q.device)
            if padding is not None:
                mask = mask & ~padding[:, None, None, :]  # [B, 1, L, L]
            return products(q, k, v, mask, relative)
        return self._windowed(q, k, v, padding, self.window)

    def _windowed(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, window: int
    ) -> Tensor:
        """Runs of `window` queries read their own run and the one before: linear in the length."""
        length = q.shape[2]
        n_runs = -(-length // window)
        tail = n_runs * window - length
        runs = rearrange(F.pad(q, (0, 0, 0, tail)), "b h (n q) e -> b h n q e", n=n_runs)
        k, v = (
            rearrange(
                F.pad(x, (0, 0, window, tail)).unfold(2, 2 * window, window),
                "b h n e k -> b h n k e",
            )
            for x in (k, v)
        )  # [B, H, N, 2w, E]
        position = torch.arange(n_runs * window, device=q.device).view(n_runs, window, 1)
        before = torch.arange(2 * window, device=q.device) - window  # [2w]
        key = position[:, :1] + before  # [N, 1, 2w]
        mask = self.allowed(position, key) & (key >= 0) & (key < length)  # [N, w, 2w]
        if padding is not None:
            hidden = F.pad(padding, (window, tail), value=True).unfold(1, 2 * window, window)
            mask = mask & ~hidden[:, None, :, None, :]  # [B, 1, N, w, 2w]
        vectors = self._vectors(window - 1, 0, q).unsqueeze(1)  # [H, 1, w, E]
        relative = skew_two_runs(runs @ vectors.mT)  # [B, H, N, w, 2w]
        y = products(runs, k, v, mask, relative)  # [B, H, N, w, E]
        return y.flatten(2, 3)[:, :, :length]  # [B, H, L, E]

    def _both_ways(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        length = q.shape[2]
        relative = skew_both_ways(q @ self._vectors(length - 1, 1 - length, q).mT)  # [B, H, L, L]
        position = torch.arange(length, device=q.device)
        mask = self.allowed(position[:, None], position[None, :])  # [L, L]
        if padding is not None:
            mask = mask & ~padding[:, None, None, :]  # [B, 1, L, L]
        return products(q, k, v, mask, relative)

    def _vector(self, distance: Tensor) -> Tensor:
        """Index into the table of each distance, clipped at its ends."""
        if self.causal:
            return distance.clamp(0, self.max_distance)
        return distance.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def _vectors(self, first: int, last: int, like: Tensor) -> Tensor:
        """The vectors of distances first, first - 1, ..., last: [H, first - last + 1, E]."""
        distance = torch.arange(first, last - 1, -1, device=like.device)
        return self.table.to(like.dtype).index_select(1, self._vector(distance))


def skew(x: Tensor) -> Tensor:
    """Columns by falling distance to columns by key, without an L x L x E tensor.

    x [..., L, L], column c holding distance L-1-c -> y [..., L, L] with y[i, j] of distance i-j
    on and below the diagonal. Above it stands garbage, which the causal mask must hide
    (Music Transformer, section 3.4.1: pad a column on the left, reshape, drop the first row).
    """
    length = x.shape[-1]
    padded = F.pad(x, (1, 0))  # [..., L, L + 1]
    rows = padded.reshape(*x.shape[:-2], length + 1, length)
    return rows[..., 1:, :]  # [..., L, L]


def skew_two_runs(x: Tensor) -> Tensor:
    """The skew of a run of w queries over 2w keys that begin one run earlier.

    x [..., w, w], column c holding distance w-1-c -> y [..., w, 2w] with y[a, b] of distance
    w+a-b wherever that lies in 0..w-1; elsewhere padding or garbage, which the mask must hide.
    """
    run = x.shape[-1]
    padded = F.pad(x, (1, run))  # [..., w, 2w + 1]
    flat = padded.flatten(-2)[..., : 2 * run * run]
    return flat.reshape(*x.shape[:-2], run, 2 * run)  # [..., w, 2w]


def skew_both_ways(x: Tensor) -> Tensor:
    """x [..., L, 2L-1], column c holding distance L-1-c -> y [..., L, L], y[i, j] of i-j."""
    length = x.shape[-2]
    flat = F.pad(x, (1, 0)).flatten(-2)[..., length:]  # [..., L (2L - 1)]
    rows = flat.reshape(*x.shape[:-2], length, 2 * length - 1)
    return rows[..., :length]  # [..., L, L]
