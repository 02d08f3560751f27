"""Ideas of attention as classes of a user, outside the package; the contract tests them all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.attention.backends.dispatch import attention_weights
from triptych.core.attention.full import Full
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import AttentionConfig, MultiHeadAttention
from triptych.core.attention.relative_bias import ScalarBias


@dataclass(frozen=True)
class Dilated(AttentionConfig):
    """Every second position of a window, and first positions that all see (2004.05150, 3.1)."""

    window: int = 3
    n_global: int = 2

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return DilatedPattern(self.window, self.n_global, causal)


class DilatedPattern(MaskPattern):
    def __init__(self, window: int, n_global: int, causal: bool) -> None:
        super().__init__()
        self.window, self.n_global, self.causal = window, n_global, causal

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        distance = (query - key).abs()
        near = (distance % 2 == 0) & (distance < 2 * self.window)
        return (near | (key < self.n_global)) & ((key <= query) | (not self.causal))


@dataclass(frozen=True)
class Alibi(Full):
    """A penalty that grows with the distance (Press et al. 2022, 2108.12409, section 3)."""

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> ScalarBias:
        return AlibiBias(n_heads)


class AlibiBias(ScalarBias):
    def value(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        slope = 2 ** (-8 / len(self.heads) * (head + 1))
        return -slope * (query - key).abs()


@dataclass(frozen=True)
class T5Buckets(Full):
    """A learned number for each bucket of distances (Raffel et al. 2020, 1910.10683, 2.1)."""

    n_buckets: int = 32
    max_distance: int = 128

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> ScalarBias:
        return BucketBias(n_heads, self.n_buckets, self.max_distance)


class BucketBias(ScalarBias):
    def __init__(self, n_heads: int, n_buckets: int, max_distance: int) -> None:
        super().__init__(n_heads)
        self.near = n_buckets // 2  # distances with a bucket of their own
        self.widening = (n_buckets - self.near) / math.log(max_distance / self.near)
        self.table = nn.Parameter(torch.randn(n_heads, 2 * n_buckets) * 0.1)

    def value(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance, n_buckets = (query - key).abs(), self.table.shape[1] // 2
        far = self.near + ((distance / self.near).clamp(min=1).log() * self.widening).long()
        bucket = torch.where(distance < self.near, distance, far.clamp(max=n_buckets - 1))
        return self.table[head, bucket + n_buckets * (query < key)]


@dataclass(frozen=True)
class Kerple(Full):
    """A learned kernel, -a log(1 + b distance) (Chi et al. 2022, 2205.09921, equation 6)."""

    def relative_bias(self, n_heads: int, d_head: int, causal: bool) -> ScalarBias:
        return KerpleBias(n_heads)


class KerpleBias(ScalarBias):
    def __init__(self, n_heads: int) -> None:
        super().__init__(n_heads)
        self.a, self.b = nn.Parameter(torch.rand(n_heads)), nn.Parameter(torch.rand(n_heads))

    def value(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return -self.a.exp()[head] * (self.b.exp()[head] * (query - key).abs()).log1p()


class NormedAttention(MultiHeadAttention):
    def __init__(self, d_model: int, n_heads: int, *others: Any, **options: Any) -> None:
        super().__init__(d_model, n_heads, *others, **options)
        self.scale = nn.Parameter(torch.full((n_heads, 1, 1), 4.0 * self.d_head**0.5))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x)
        return F.normalize(q, dim=-1) * self.scale, F.normalize(k, dim=-1), v


@dataclass(frozen=True)
class NormedQueries(Full):
    """Queries and keys of norm one, and a learned scale (Henry et al. 2020, 2010.04245)."""

    layer_class = NormedAttention


@dataclass(frozen=True)
class SoftCap(Full):
    """Logits between -cap and cap (Gemma 2, 2408.00118, section 2)."""

    cap: float = 5.0

    def build(
        self, d_model: int, n_heads: int, pattern: MaskPattern, **options: Any
    ) -> MultiHeadAttention:
        layer = CappedAttention(d_model, n_heads, pattern, **options)
        layer.cap = self.cap
        return layer


class CappedAttention(MultiHeadAttention):
    cap: float

    def pair_weights(self, q: Tensor, k: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        logits = self.cap * (q @ k.mT * self.d_head**-0.5 / self.cap).tanh()  # [B, H, Q, K]
        return masked_softmax(logits, mask)


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    lowest = torch.finfo(logits.dtype).min  # a row without a visible key has no NaN
    return logits.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)


class SinkAttention(MultiHeadAttention):
    def __init__(self, d_model: int, n_heads: int, *others: Any, **options: Any) -> None:
        super().__init__(d_model, n_heads, *others, **options)
        self.sink = nn.Parameter(torch.randn(n_heads, 1, 1))

    def pair_weights(self, q: Tensor, k: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        logits = (q @ k.mT * self.d_head**-0.5).masked_fill(~mask, -torch.inf)  # [B, H, Q, K]
        sink = self.sink.to(q.dtype).expand(*logits.shape[:3], 1)
        return torch.cat([logits, sink], -1).softmax(-1)[..., :-1]  # [B, H, Q, K]


@dataclass(frozen=True)
class Sinks(Full):
    """A learned logit that takes weight from all keys (Xiao et al. 2024, 2309.17453, 3.2)."""

    layer_class = SinkAttention


class DifferentialAttention(MultiHeadAttention):
    def __init__(self, d_model: int, n_heads: int, *others: Any, **options: Any) -> None:
        super().__init__(d_model, n_heads, *others, **options)
        self.share = nn.Parameter(torch.full((n_heads, 1, 1), 0.5))

    def pair_weights(self, q: Tensor, k: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        halves = zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)  # each [B, H, ., E / 2]
        first, second = (attention_weights(*half, mask) for half in halves)  # [B, H, Q, K] each
        return first - self.share.to(q.dtype) * second


@dataclass(frozen=True)
class Differential(Full):
    """The difference of two attentions (Ye et al. 2025, 2410.05258, section 2.1).

    Each head has two queries and two keys of half its width.
    """

    layer_class = DifferentialAttention
