"""FlexAttention on CUDA: any pattern as one compiled kernel (Dong et al. 2024, 2412.05496).

The pattern's `visible` is the `mask_mod`; the `score_mod` adds the relative bias.
FlexAttention has no dropout, and no backward pass on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.relative_bias import RelativeBias, TokenBias

SMALLEST_HEAD = 16
"""Features of a head below which PyTorch compiles no kernel."""


def flex_serves(q: Tensor) -> bool:
    """Whether FlexAttention computes attention for queries q [B, H, L, E]."""
    return q.shape[-1] >= SMALLEST_HEAD and q.dtype in (
        torch.float32,
        torch.bfloat16,
        torch.float16,
    )


def attend_by_flex(
    pattern: MaskPattern,
    bias: RelativeBias | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    token_classes: Tensor | None = None,
    real: Tensor | None = None,
    compiled: bool = True,
) -> Tensor:
    """Softmax attention under a pattern: q, k, v [B, H, L, E] -> [B, H, L, E].

    token_classes: int64 [B, L], for a bias that reads tokens. real: bool [B, L], False on
    padding. compiled: False computes the same from its definition, on any device, and holds an
    L x L tensor.
    """
    logits = () if bias is None else bias.logits(q * q.shape[-1] ** -0.5)  # each [B, H, L, n]

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        if bias is not None:
            chosen = bias.index(q_idx, kv_idx)
            if isinstance(bias, TokenBias) and token_classes is not None:
                classes = token_classes[b, q_idx], token_classes[b, kv_idx]
                chosen = (*chosen, bias.token_index(*classes))
            for term, index in zip(logits, chosen, strict=True):
                score = score + term[b, h, q_idx, index]
        # Here and not in the block mask, which is made once for all batches.
        return score if real is None else torch.where(real[b, kv_idx], score, -torch.inf)

    mask = _block_mask(pattern, q.shape[2], q.device, compiled)
    plain = bias is None and real is None
    attention = _function("flex_attention", compiled)
    y: Tensor = attention(q, k, v, score_mod=None if plain else score_mod, block_mask=mask)
    return y  # [B, H, L, E]


@lru_cache(maxsize=32)  # the layers of a stack share one pattern
def _block_mask(pattern: MaskPattern, length: int, device: torch.device, compiled: bool) -> Any:
    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return pattern.visible(q_idx, kv_idx)

    create = _function("create_block_mask", compiled)
    with torch.inference_mode(False):  # a cached mask must also serve training
        return create(mask_mod, None, None, length, length, device=device)


@lru_cache(maxsize=4)
def _function(name: str, compiled: bool) -> Callable[..., Any]:
    from torch.nn.attention import flex_attention as module

    function: Callable[..., Any] = getattr(module, name)
    return torch.compile(function) if compiled else function
