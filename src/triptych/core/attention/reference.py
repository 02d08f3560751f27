"""Attention as it is written: two matrix products and a softmax between them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


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
