"""The one place that chooses how attention without a bias is computed, with what it rests on.

Measured forward and backward (8 heads of 64, two cores with AVX512-BF16, no AMX),
time over that of `scaled_dot_product_attention`; below 1 is faster:

| CPU, causal | L 24 | 128 | 256 | 512 | 1024 | 4096 |
|---|---|---|---|---|---|---|
| bfloat16, explicit products | 0.22 | 0.42 | 0.77 | 1.5 | | |
| bfloat16, tiles | | | 0.48 | 0.38 | 0.52 | 0.63 |
| float32, explicit products | above 1 at every length | | | | | |
| float32, tiles (at 2048: 0.94 to 1.04) | | | 0.82 to 0.92 | 0.75 | 0.75 to 0.86 | 1.09 |
| float32, one tile under a mask, over SDPA with it | | | 1.1 to 1.4 | 1.0 to 1.3 | 1.1 to 1.4 | |
| dropout 0.1 over none: tiles | | | 1.07 | | 1.10 | 1.00 |
| dropout 0.1 over none: SDPA | | | 2 to 3 | | 5 to 6 | 7 to 10 |

With AMX (two other cores) PyTorch's own kernel is ahead from 768 keys on, where it takes 256
queries at once instead of 64, causal or under a mask. Below that tiles need many rows (sentences x
heads), and float32 512 keys; q, k and v as the projection leaves them:

| CPU with AMX, causal | L 24 | 64 | 128 | 256 | 512 | 768 | 1024 | 2048 |
|---|---|---|---|---|---|---|---|---|
| bfloat16, explicit products | 0.31 | 0.35 | 0.41 | 1.2 | 1.6 | 2.6 | 3.8 | |
| bfloat16, tiles, 8 rows | | 0.64 | 0.83 | 1.5 | 1.2 to 1.5 | 1.5 | 1.1 to 1.3 | 1.1 |
| bfloat16, tiles, 32 or 64 rows | | | | 0.8 to 1.0 | 0.7 to 0.8 | | | |
| float32, tiles, 8 rows | | 1.3 | 1.0 | 1.2 | 1.0 to 1.3 | 1.2 | 1.0 to 1.2 | 1.1 |
| float32, tiles, 32 or 64 rows | | | | 1.2 to 1.4 | 0.8 to 0.9 | | | |

And rows of a picture's blocks through that kernel, over the same with explicit products (blocks of
8 x 8, halo of 4; before heads were computed side by side and windows lay in strips, which serves
both): float32, forward and backward, 32 x 32 x 3 0.8 to 0.87 (four pictures 0.86),
64 x 64 x 3 0.8, 64 x 64 0.95, 28 x 28 (16 pictures, 4 heads of 48) 1.0, 32 x 32 x 3 with 4 heads of
32 0.74; forward alone 0.85 to 0.92; bfloat16 1.5 to 1.8 (its backward pass), forward alone 0.5 to
0.8.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.backends.grid import Blocks
from triptych.core.attention.backends.grid_fused import attend_in_fused_blocks
from triptych.core.attention.backends.grid_tiles import attend_in_blocks
from triptych.core.attention.backends.spans import (
    Edge,
    Reach,
    Tile,
    queries_per_tile,
    tiles_over,
)
from triptych.core.attention.backends.tiled import attend_in_tiles
from triptych.core.attention.reference import causal_mask, products
from triptych.core.processor import has_matrix_units

Kernel = Literal["sdpa", "products", "tiles"]

MOST_KEYS_OF_PRODUCTS = 128
"""Keys up to which explicit products beat everything else in bfloat16 on a CPU."""
FEWEST_KEYS_OF_TILES = 256
MOST_KEYS_OF_FLOAT32_TILES = 1024
"""Keys up to which tiles beat SDPA in float32 without AMX, where half of the pairs are hidden."""
MOST_KEYS_OF_TILES_WITH_AMX = 767
"""Keys up to which tiles beat SDPA on a processor with AMX, in both precisions."""
FEWEST_KEYS_OF_FLOAT32_TILES_WITH_AMX = 512
"""Keys from which tiles beat SDPA there in float32."""
FEWEST_PAIRS_OF_TILES_WITH_AMX = 2**22
"""Queries times keys, over all rows, from which tiles beat SDPA there, in both precisions."""


def kernel_for(q: Tensor, n_keys: int, *, causal: bool = False, dropout: float = 0.0) -> Kernel:
    """The fastest kernel for queries like q [..., Q, E] over so many keys.

    `sdpa`: scaled_dot_product_attention, flash attention where PyTorch has it. `products`: matrix
    product, softmax, matrix product. `tiles`: the same in parts, with an own backward pass.
    """
    if dropout > 0:
        return "tiles"  # SDPA leaves its flash path, on CPUs at 5 to 10 times the time
    if q.device.type != "cpu":
        return "sdpa"
    half = q.dtype in (torch.bfloat16, torch.float16)
    if half and n_keys <= MOST_KEYS_OF_PRODUCTS:
        return "products"
    # Without a backward pass there is nothing to win: SDPA's forward pass is fast in bfloat16 too.
    if not torch.is_grad_enabled() or n_keys < FEWEST_KEYS_OF_TILES:
        return "sdpa"
    if has_matrix_units():
        fewest = FEWEST_KEYS_OF_TILES if half else FEWEST_KEYS_OF_FLOAT32_TILES_WITH_AMX
        if not fewest <= n_keys <= MOST_KEYS_OF_TILES_WITH_AMX:
            return "sdpa"
        if q.shape[:-1].numel() * n_keys < FEWEST_PAIRS_OF_TILES_WITH_AMX:
            return "sdpa"
    single = q.dtype == torch.float32 and causal and n_keys <= MOST_KEYS_OF_FLOAT32_TILES
    return "tiles" if half or single else "sdpa"


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    reach: Reach,
    *,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention of positions 0..L-1 to the keys that they reach.

    q [B, H, Q, E], k and v [B, H, K, E], Q = K unless the reach is without ends; padding [B, K]
    True on padding; dropout: share of the weights dropped -> [B, H, Q, E].
    """
    n_keys = k.shape[-2]
    everything = reach.before is None and reach.after is None
    causal = reach.before is None and reach.after == 0
    kernel = kernel_for(q, n_keys, causal=causal, dropout=dropout)
    if kernel == "tiles" or not (everything or causal):
        tiles = tiles_over(reach, q.shape[-2], queries_per_tile(n_keys, q), q.device)
        if everything:
            tiles = tuple(tile._replace(end=n_keys) for tile in tiles)
        return attend_in_tiles(q, k, v, tiles, padding=padding, dropout=dropout)
    mask = None if padding is None else ~padding[:, None, None, :]  # [B, 1, 1, K]
    if causal and (mask is not None or kernel == "products"):
        past = causal_mask(n_keys, q.device)  # [Q, K]
        mask = past if mask is None else mask & past  # [B, 1, Q, K]
    if kernel == "products":
        return products(q, k, v, mask)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal and mask is None
    )


def attend_masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor,
    *,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention under any mask: visible bool [L, L], True where the key is seen.

    q, k, v [B, H, L, E]; padding [B, L] True on padding; dropout: share of the weights dropped
    -> [B, H, L, E]. Its work and memory grow with the square of the length.
    """
    length = q.shape[-2]
    kernel = kernel_for(q, length, dropout=dropout)
    if kernel == "tiles":
        tile = Tile(0, length, 0, length, (Edge(0, ~visible),))
        return attend_in_tiles(q, k, v, [tile], padding=padding, dropout=dropout)
    mask = visible if padding is None else visible & ~padding[:, None, None, :]  # [B, 1, L, L]
    if kernel == "products":
        return products(q, k, v, mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attend_over_picture(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Blocks,
    hidden: Tensor,
    *,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention of each block of a picture over its window.

    q, k, v [B, H, L, E] in raster order; hidden bool [kinds, columns, Q, K] as `hidden_keys` says;
    padding [B, L] True on padding; dropout: share of the weights dropped -> [B, H, L, E].
    """
    lowest = torch.finfo(q.dtype).min
    mask = torch.zeros_like(hidden, dtype=q.dtype).masked_fill_(hidden, lowest)
    if padding is None and dropout == 0 and fused_blocks_pay(q):
        return attend_in_fused_blocks(q, k, v, blocks, mask)
    return attend_in_blocks(q, k, v, blocks, mask, padding=padding, dropout=dropout)


def fused_blocks_pay(q: Tensor) -> bool:
    """Whether PyTorch's own kernel is faster for the blocks of a picture than products are."""
    if q.device.type != "cpu" or not has_matrix_units():
        return False
    only_forward = q.dtype == torch.bfloat16 and not torch.is_grad_enabled()
    return q.dtype == torch.float32 or only_forward
