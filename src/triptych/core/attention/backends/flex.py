"""FlexAttention: on a CUDA GPU any pattern as one compiled kernel; optional, beside our own.

A pattern's `visible` is the mask and its `related` the scores, so no variant is written twice (Dong
et al. 2024, 2412.05496). It has no backward pass on a CPU, and compiles anew for each length.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from triptych.core.attention.mask import MaskPattern


def attend_by_flex(
    pattern: MaskPattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    padding: Tensor | None = None,
    *,
    compiled: bool = True,
) -> Tensor:
    """The same as `pattern.attend`: q, k, v [B, H, L, E], padding [B, L] -> [B, H, L, E].

    compiled: through torch.compile, without which it holds an L x L tensor.
    """
    from torch.nn.attention import flex_attention as flex

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = pattern.visible(query, key)
        return seen if padding is None else seen & ~padding[row, key]

    batch, _, length, width = q.shape
    rows = None if padding is None else batch
    mask = flex.create_block_mask(visible, rows, None, length, length, device=q.device)
    related = pattern.related(q)  # [B, H, L, n]
    zero = torch.zeros(1, 1, dtype=torch.int64, device=q.device)
    if related is None and pattern.relation(zero, zero) is not None:
        raise ValueError(f"{type(pattern).__name__} has a bias that FlexAttention is not told of")
    change = None
    if related is not None:
        scores = related * width**-0.5

        def change(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            relation = pattern.relation(query, key)
            changed: Tensor = score + scores[row, head, query, relation]
            return changed

    attention = _compiled() if compiled else flex.flex_attention
    y: Tensor = attention(q, k, v, score_mod=change, block_mask=mask)  # [B, H, L, E]
    return y


@lru_cache(maxsize=1)
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)
