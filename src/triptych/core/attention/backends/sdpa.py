"""Attention by PyTorch's `scaled_dot_product_attention`: full, causal, or under a boolean mask."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def attend_by_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k^T / sqrt(E)) v: q [B, H, Q, E], k and v [B, H, K, E] -> [B, H, Q, E].

    causal: hide the keys after the query (needs Q = K). mask: bool, broadcasts to [B, H, Q, K],
    True where the key is visible. padding: bool [B, K], True on padding. dropout: share of the
    attention weights that is dropped. A query without a visible key gets zeros.
    """
    if padding is not None:
        real = ~padding[:, None, None, :]  # [B, 1, 1, K]
        mask = real if mask is None else mask & real
        if causal:  # SDPA takes either a mask or the causal flag
            mask, causal = mask & causal_mask(k.shape[2], k.device), False  # [B, 1, Q, K]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, dropout_p=dropout
    )


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where the key is not after the query: bool [L, L]."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
