"""Memory-compressed attention: queries read a convolution of the keys and values before them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from triptych.core.attention.backends import tiled
from triptych.core.attention.backends.dispatch import attend_by_sdpa, attention_weights
from triptych.core.attention.mask import CacheLayout, MaskPattern, count_pairs
from triptych.core.attention.multihead import AttentionConfig, MultiHeadAttention
from triptych.core.state import NO_CONTEXT, ForwardContext, LayerCache, StepContext
from triptych.types import PositiveInt


@dataclass(frozen=True)
class Compressed(AttentionConfig):
    """One key and one value for `stride` positions (Liu et al. 2018, 1801.10198, section 4.2.4).

    A convolution of width and stride `stride` makes them from the projected keys and values, each
    head with kernels of its own. A query sees a compressed block if it is not before the block's
    last position, and the keys of its own incomplete block as they are. The paper does not say
    what positions before the first complete block see; here a query sees all its past. Causal.
    """

    causal_only = True

    stride: PositiveInt = 3
    """Number of positions that one compressed key stands for."""

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> CompressedPattern:
        return CompressedPattern(self.stride)

    def build(
        self, d_model: int, n_heads: int, pattern: MaskPattern, **options: Any
    ) -> MultiHeadAttention:
        if options.pop("rotary", None) is not None:
            raise ValueError("Compressed attention cannot be combined with rotary positions")
        assert isinstance(pattern, CompressedPattern)
        return CompressedAttention(d_model, n_heads, pattern, **options)


class CompressedPattern(MaskPattern):
    """All of the past: complete blocks of `stride` positions, and positions after the last one.

    `visible` says which positions a query reads, the other two methods which keys it sees.
    """

    def __init__(self, stride: int) -> None:
        super().__init__(CacheLayout(stride))
        self.stride = stride

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    def block_visible(self, query: Tensor, block: Tensor) -> Tensor:
        """True where the query sees the compressed key of a block; the blocks count from 0."""
        return (block + 1) * self.stride - 1 <= query

    def uncompressed_visible(self, query: Tensor, key: Tensor) -> Tensor:
        """True where the query sees the key of a position as it is: in its incomplete block."""
        first = (query + 1) // self.stride * self.stride
        return (first <= key) & (key <= query)

    def visible_pairs(self, length: int) -> int:
        """Number of pairs of a query and a key that it sees, compressed or as it is."""
        compressed = count_pairs(self.block_visible, length, length // self.stride)
        return compressed + count_pairs(self.uncompressed_visible, length, length)


class BlockConvolution(nn.Module):
    """Convolution of width and stride `stride` along the positions of a head, first their mean."""

    def __init__(self, n_heads: int, d_head: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        mean = torch.eye(d_head).repeat(stride, 1) / stride  # [stride E, E]
        self.weight = nn.Parameter(mean.repeat(n_heads, 1, 1))  # [H, stride E, E]
        self.bias = nn.Parameter(torch.zeros(n_heads, 1, d_head))

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, N stride, E] -> [B, H, N, E]."""
        blocks = rearrange(x, "b h (n s) e -> b h n (s e)", s=self.stride)
        compressed: Tensor = blocks @ self.weight.to(x.dtype) + self.bias.to(x.dtype)
        return compressed.to(x.dtype)


class CompressedAttention(MultiHeadAttention):
    """Attention to N compressed keys, `key_blocks` of a cache, and to the incomplete block."""

    mask_pattern: CompressedPattern

    def __init__(
        self, d_model: int, n_heads: int, pattern: CompressedPattern, *, dropout: float = 0.0
    ) -> None:
        super().__init__(d_model, n_heads, pattern, dropout=dropout)
        self.stride = pattern.stride
        self.compress_keys = BlockConvolution(n_heads, self.d_head, self.stride)
        self.compress_values = BlockConvolution(n_heads, self.d_head, self.stride)

    def forward(
        self, x: Tensor, context: ForwardContext = NO_CONTEXT, cache: LayerCache | None = None
    ) -> Tensor:
        q, k, v, key_blocks, value_blocks = self._keys_and_blocks(x, context.real)
        if cache is not None:
            self.fill(cache, k, v, context)
            cache["key_blocks"][:, :, : key_blocks.shape[2]] = key_blocks
            cache["value_blocks"][:, :, : value_blocks.shape[2]] = value_blocks
        return self.merge(self._attend_in_tiles(q, k, v, (key_blocks, value_blocks), context.real))

    def reference(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """All queries over all keys and all blocks, [L, N + L], under a mask."""
        q, k, v, key_blocks, value_blocks = self._keys_and_blocks(x, context.real)
        weights = self._all_weights(q, torch.cat([key_blocks, k], dim=2), context.real)
        return self.merge(weights @ torch.cat([value_blocks, v], dim=2))

    def weights(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """Attention weights by position; those of a block are divided evenly: [B, H, L, L]."""
        length = x.shape[1]
        q, k, _, key_blocks, _ = self._keys_and_blocks(x, context.real)
        n_blocks = key_blocks.shape[2]
        weights = self._all_weights(q, torch.cat([key_blocks, k], dim=2), context.real)
        of_blocks, own = weights.split([n_blocks, length], dim=-1)
        block = torch.arange(n_blocks, device=x.device).unsqueeze(1)  # [N, 1]
        inside = torch.arange(length, device=x.device) // self.stride == block  # [N, L]
        if context.real is not None:
            inside = inside & context.real[:, None, None, :]  # [B, 1, N, L]
        shares = inside.to(weights.dtype)
        shares = shares / shares.sum(-1, keepdim=True).clamp(min=1)
        by_position: Tensor = of_blocks @ shares + own  # [B, H, L, L]
        return by_position

    def init_cache(self, batch: int, max_length: int, lookahead: int = 0) -> LayerCache:
        cache = super().init_cache(batch, max_length, lookahead)
        size = (batch, self.n_heads, self._n_blocks(max_length), self.d_head)
        blocks = {f"{name}_blocks": tensor.new_zeros(size) for name, tensor in cache.items()}
        return cache | blocks

    def cache_view(self, cache: LayerCache, length: int) -> LayerCache:
        n_blocks = self._n_blocks(length)
        blocks = {name: cache[name][:, :, :n_blocks] for name in ("key_blocks", "value_blocks")}
        return super().cache_view(cache, length) | blocks

    def _visible(self, query: Tensor, key: Tensor, cache: LayerCache) -> Tensor:
        """Whether queries see the blocks, then the keys of the slots: [..., P, N + S]."""
        block = torch.arange(cache["key_blocks"].shape[2], device=query.device)  # [N]
        slots = self.mask_pattern.uncompressed_visible(query, key) & (key >= 0)  # [..., P, S]
        return torch.cat([self.mask_pattern.block_visible(query, block), slots], dim=-1)

    def step(self, x: Tensor, cache: LayerCache, context: StepContext) -> Tensor:
        dtype, positions = cache["key"].dtype, context.positions
        q, k, v = (part.to(dtype) for part in self.heads(x, None))  # [B, H, P, E]
        # The blocks that the positions enter. An incomplete one is hidden, and is computed again
        # at its last position.
        n_entered = self._n_blocks(len(positions))
        blocks = positions[:1] // self.stride + torch.arange(n_entered, device=x.device)  # [n]
        first = blocks.unsqueeze(1) * self.stride  # [n, 1]
        members = (first + torch.arange(self.stride, device=x.device)).flatten()  # [n stride]
        slots = self.mask_pattern.layout.slots(members, cache["key"].shape[2])

        def written(name: str, new: Tensor, compress: nn.Module) -> Tensor:
            kept = cache[name].index_copy_(2, context.slots, new)  # [B, H, S, E]
            compressed = compress(kept.index_select(2, slots))  # [B, H, n, E]
            of_blocks = cache[f"{name}_blocks"].index_copy_(2, blocks, compressed)  # [B, H, N, E]
            return torch.cat([of_blocks, kept], dim=2)  # [B, H, N + S, E]

        keys = written("key", k, self.compress_keys)
        values = written("value", v, self.compress_values)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=context.mask)  # [B, H, P, E]
        return self.merge(y.to(x.dtype))

    def _n_blocks(self, length: int) -> int:
        """Blocks that `length` positions may enter, from any first position on, see `step`."""
        return (length + self.stride - 2) // self.stride + 1

    def _keys_and_blocks(
        self, x: Tensor, real: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """q, k, v [B, H, L, E]; keys and values of blocks [B, H, N, E], padding zero in them."""
        q, k, v = self.heads(x, None)
        complete = x.shape[1] // self.stride * self.stride
        read_k, read_v = k[:, :, :complete], v[:, :, :complete]
        if real is not None:
            padding = ~real[:, None, :complete, None]  # [B, 1, N stride, 1]
            read_k, read_v = read_k.masked_fill(padding, 0), read_v.masked_fill(padding, 0)
        return q, k, v, self.compress_keys(read_k), self.compress_values(read_v)

    def _all_weights(self, q: Tensor, keys: Tensor, real: Tensor | None) -> Tensor:
        """Weights of all blocks and all positions: keys [B, H, N + L, E] -> [B, H, L, N + L]."""
        mask = self._mask(slice(0, q.shape[2]), keys.shape[2] - q.shape[2], real, q.device)
        return attention_weights(q, keys, mask)

    def _mask(
        self, tile: slice, n_blocks: int, real: Tensor | None, device: torch.device
    ) -> Tensor:
        """Whether the T queries of a tile see the blocks, then the tile's keys: [.., T, N + T]."""
        position = torch.arange(tile.start, tile.stop, device=device)  # [T]
        query, block = position.unsqueeze(1), torch.arange(n_blocks, device=device)
        of_blocks = self.mask_pattern.block_visible(query, block)  # [T, N]
        own = self.mask_pattern.uncompressed_visible(query, position)  # [T, T]
        if real is not None:
            any_real = rearrange(
                real[:, : n_blocks * self.stride], "b (n s) -> b n s", s=self.stride
            )
            of_blocks = of_blocks & any_real.any(-1)[:, None, None]  # [B, 1, T, N]
            own = own & real[:, None, None, tile]  # [B, 1, T, T]
        return torch.cat([of_blocks, own], dim=-1)

    def _attend_in_tiles(
        self, q: Tensor, k: Tensor, v: Tensor, blocks: tuple[Tensor, Tensor], real: Tensor | None
    ) -> Tensor:
        """Attention, one tile of queries after another: [B, H, L, E].

        A tile begins with a block, so it has the incomplete blocks of its queries. The backward
        pass computes a tile again: memory grows with the length and not with its square.
        """
        length = q.shape[2]
        size = -(-tiled.queries_per_tile(q.device) // self.stride) * self.stride

        def attend(tile: slice, q: Tensor) -> Tensor:
            n_blocks = tile.stop // self.stride
            keys, values = (
                torch.cat([of_blocks[:, :, :n_blocks], own[:, :, tile]], dim=2)
                for of_blocks, own in zip(blocks, (k, v), strict=True)
            )
            mask = self._mask(tile, n_blocks, real, q.device)
            dropout = self.dropout if self.training else 0.0
            return attend_by_sdpa(q[:, :, tile], keys, values, mask=mask, dropout=dropout)

        tiles = (slice(start, min(start + size, length)) for start in range(0, length, size))
        # q is an argument: its device is that whose random numbers the backward pass draws again.
        outputs = [checkpoint(partial(attend, tile), q, use_reentrant=False) for tile in tiles]
        return torch.cat(outputs, dim=2)
