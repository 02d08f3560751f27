"""Choice of the attention backend by pattern and device, and attention by PyTorch's SDPA.

| pattern | CPU and other devices | CUDA |
|---|---|---|
| full or causal, without a relative bias | SDPA | SDPA |
| windows (local 2-D) | `windows`; SDPA under a mask for short sequences | `flex` |
| all others | `tiled` | `flex` |

SDPA is `scaled_dot_product_attention`, which takes the flash kernels of the device. With attention
dropout, heads narrower than 16 features or float64 (`flex_serves`) CUDA uses the other backend; so
it does for deterministic algorithms, since the gradient of FlexAttention adds up in any order.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.backends.flex import attend_by_flex, flex_serves
from triptych.core.attention.backends.tiled import attend_in_tiles
from triptych.core.attention.mask import MaskPattern, Windows
from triptych.core.attention.relative_bias import RelativeBias, ScalarBias, TokenBias


def attend(
    pattern: MaskPattern,
    bias: RelativeBias | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    token_classes: Tensor | None = None,
    real: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention under a pattern for positions 0..L-1.

    q, k, v [B, H, L, E]; token_classes int64 [B, L], for a bias that reads tokens; real bool
    [B, L], False on padding; dropout: share of the attention weights dropped -> [B, H, L, E].
    """
    length = q.shape[2]
    if pattern.is_full and bias is None:
        return attend_by_sdpa(q, k, v, causal=pattern.causal, real=real, dropout=dropout)
    by_kernel = dropout == 0 and not torch.are_deterministic_algorithms_enabled()
    if q.is_cuda and by_kernel and flex_serves(q):
        return attend_by_flex(pattern, bias, q, k, v, token_classes=token_classes, real=real)
    windows = pattern.windows
    if windows is None or bias is not None:
        if isinstance(bias, TokenBias) and token_classes is not None:
            q, k = bias.token_features(q, k, token_classes)
        if isinstance(bias, ScalarBias):
            q, k = bias.with_constant(q, k)
        return attend_in_tiles(pattern, bias, q, k, v, real=real, dropout=dropout)
    if windows_pay(windows, length):
        return attend_in_windows(windows, q, k, v, real=real, dropout=dropout)
    position = torch.arange(length, device=q.device)  # [L]
    mask = pattern.visible(position.unsqueeze(1), position)  # [L, L]
    return attend_by_sdpa(q, k, v, mask=mask, real=real, dropout=dropout)


def windows_pay(windows: Windows, length: int) -> bool:
    """Whether windows have less than half of the pairs of full attention, and so pay a gather."""
    return 2 * windows.n_pairs < length**2


def attend_by_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    real: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k^T / sqrt(E)) v: q [B, H, Q, E], k and v [B, H, K, E] -> [B, H, Q, E].

    causal: hide the keys after the query (needs Q = K). mask: bool, broadcasts to [B, H, Q, K],
    True where the key is visible. real: bool [B, K], False on padding. dropout: share of the
    attention weights that is dropped. A query without a visible key gets zeros.
    """
    if real is not None:
        real = real[:, None, None, :]  # [B, 1, 1, K]
        mask = real if mask is None else mask & real
        if causal:  # SDPA takes either a mask or the causal flag
            not_after = mask.new_ones(q.shape[2], k.shape[2]).tril()  # [Q, K]
            mask, causal = mask & not_after, False  # [B, 1, Q, K]
    y = _sdpa(q, k, v, mask, dropout, causal=causal)
    if q.is_cuda and mask is not None and torch.backends.cuda.cudnn_sdp_enabled():
        # cuDNN's kernel gives other values than zeros to a query without a visible key.
        y = y.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return y


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, *, causal: bool = False
) -> Tensor:
    """SDPA in the type of q; float32 inside where that is faster."""
    more: dict[str, Any] = {"attn_mask": mask, "dropout_p": dropout, "is_causal": causal}
    short = q.shape[2] < 256 and q.dtype == torch.bfloat16 and q.requires_grad
    if short and q.device.type == "cpu":
        # The gradient of the CPU's kernel in bfloat16 is slow for short sequences.
        with torch.autocast("cpu", enabled=False):
            y = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), **more)
        return y.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, **more)


def attend_in_windows(
    windows: Windows,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    real: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention of each block to its window: q, k, v [B, H, L, E] -> [B, H, L, E].

    L may be less than the image's length: the first L positions. real: bool [B, L], False on
    padding. dropout: share of the attention weights that is dropped.
    """
    batch, heads, length, width = q.shape
    n = windows.n_blocks

    def cut(x: Tensor, index: Tensor) -> Tensor:
        """Cells of each block or window: [B, H, L, E] -> [B N, H, cells, E]."""
        # The projection leaves the heads of a position next to each other: one long copy a cell.
        cells = x.transpose(1, 2).index_select(1, index)  # [B, N cells, H, E]
        return cells.view(batch * n, -1, heads, width).transpose(1, 2)

    # Positions after the last one are hidden from every query; another key may stand for them.
    query, key = windows.query.clamp(max=length - 1), windows.key.clamp(max=length - 1)
    mask = windows.mask.unsqueeze(1).repeat(batch, 1, 1, 1)  # [B N, 1, Q, K]
    if real is not None:
        mask = mask & real.index_select(1, key).view(batch * n, 1, 1, -1)
    y = _sdpa(cut(q, query), cut(k, key), cut(v, key), mask, dropout)  # [B N, H, Q, E]
    cells = y.transpose(1, 2).reshape(batch, -1, heads, width)  # [B, N Q, H, E]
    return cells.index_select(1, windows.cell[:length]).transpose(1, 2)  # [B, H, L, E]


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
