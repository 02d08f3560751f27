"""Attention weights from their definition; every fast path is compared with them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def attention_weights(
    q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None = None
) -> Tensor:
    """softmax((q k^T + bias) / sqrt(E)) over the visible keys: [..., Q, K].

    q [..., Q, E], k [..., K, E]; mask (bool, True where the key is visible) and bias broadcast to
    [..., Q, K]. A query without a visible key has weights of zero, in the gradient too.
    """
    logits = q @ k.mT  # [..., Q, K]
    if bias is not None:
        logits = logits + bias
    logits = logits / math.sqrt(q.shape[-1])
    if mask is None:
        return logits.softmax(-1)
    # The lowest finite number instead of -inf: a row without a visible key has no NaN.
    weights = logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(-1)
    return weights.masked_fill(~mask, 0.0)
