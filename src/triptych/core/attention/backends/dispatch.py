"""The only place that chooses how attention of a sequence to itself is computed.

| pattern | CPU and other devices | CUDA |
|---|---|---|
| full or causal | `sdpa` | `sdpa` |
| windows (local 2-D) | `windows`, `sdpa` under a mask for short sequences | `flex` |
| all others | `tiled` | `flex`, `tiled` with token-dependent bias |

With attention dropout CUDA takes the backend of the other devices, as FlexAttention has no dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.core.attention.backends.flex import attend_by_flex, flex_serves
from triptych.core.attention.backends.sdpa import attend_by_sdpa
from triptych.core.attention.backends.tiled import attend_in_tiles
from triptych.core.attention.backends.windows import Windows, attend_in_windows
from triptych.core.attention.mask import MaskPattern


def attend(
    pattern: MaskPattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention under a pattern for positions 0..L-1.

    q, k [B, H, L, E + M], v [B, H, L, E], where M features hold the token-dependent bias; padding
    bool [B, L], True on padding; dropout: share of the attention weights dropped -> [B, H, L, E].
    """
    length = q.shape[2]
    if pattern.is_full:
        return attend_by_sdpa(q, k, v, causal=pattern.causal, padding=padding, dropout=dropout)
    if q.is_cuda and dropout == 0 and flex_serves(pattern, q):
        return attend_by_flex(pattern, q, k, v, padding)
    windows = pattern.windows
    if windows is None:
        return attend_in_tiles(pattern, q, k, v, padding=padding, dropout=dropout)
    if windows_pay(windows, length):
        return attend_in_windows(windows, q, k, v, padding=padding, dropout=dropout)
    position = torch.arange(length, device=q.device)  # [L]
    mask = pattern.visible(position.unsqueeze(1), position)  # [L, L]
    return attend_by_sdpa(q, k, v, mask=mask, padding=padding, dropout=dropout)


def windows_pay(windows: Windows, length: int) -> bool:
    """Whether windows have less than half of the pairs of full attention, and so pay a gather."""
    return 2 * windows.n_pairs < length**2
