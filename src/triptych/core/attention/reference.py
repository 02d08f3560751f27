"""Attention from its definition; every fast path is compared with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from triptych.core.attention.mask import MaskPattern


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None = None
) -> Tensor:
    """softmax((q k^T + bias) / sqrt(E)) v over the visible keys.

    q [..., Q, E], k and v [..., K, E]; mask (bool, True where the key is visible) and bias
    broadcast to [..., Q, K]. A query without a visible key gets zeros, in the gradient too.
    """
    logits = q @ k.mT  # [..., Q, K]
    if bias is not None:
        logits = logits + bias
    logits = logits / math.sqrt(q.shape[-1])
    if mask is None:
        return logits.softmax(-1) @ v  # [..., Q, E]
    # The lowest finite number instead of -inf: a row without a visible key has no NaN.
    hidden = ~mask
    weights = logits.masked_fill(hidden, torch.finfo(logits.dtype).min).softmax(-1)
    return weights.masked_fill(hidden, 0.0) @ v  # [..., Q, E]


def pattern_attention(
    pattern: MaskPattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding: Tensor | None = None,
    token_bias: Tensor | None = None,
) -> Tensor:
    """Attention of positions 0..L-1 under a pattern: all logits, mask, softmax, weighted sum.

    q, k, v [B, H, L, E]; padding bool [B, L], True on padding; token_bias [B, H, L, L]: added to
    the relative bias -> [B, H, L, E].
    """
    position = torch.arange(q.shape[2], device=q.device)
    query, key = position.unsqueeze(1), position.unsqueeze(0)  # [L, 1], [1, L]
    mask = pattern.visible(query, key)  # [L, L]
    if padding is not None:
        mask = mask & ~padding[:, None, None, :]  # [B, 1, L, L]
    bias = pattern.relative_bias(q, pattern.relative_index(query, key))  # [B, H, L, L]
    if token_bias is not None:
        bias = token_bias if bias is None else bias + token_bias
    return dense_attention(q, k, v, mask, bias)
