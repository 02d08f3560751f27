"""Attention in tiles of queries, with its own backward pass and memory linear in the length.

Each tile computes the logits of its queries and of the keys that they see; the backward pass
computes the weights of each tile again (Rabe and Staats 2021, 2112.05682, section 2). Relative
logits are skewed tile by tile (Huang et al. 2018, Music Transformer, section 3.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from triptych.core.attention.mask import MaskPattern

TILE_BYTES = 2**21
"""Bytes of weights that the heads of one tile hold together on a CPU, to stay in its cache."""


def attend_in_tiles(
    pattern: MaskPattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax((q k^T + relative bias) / sqrt(E)) v over the visible keys.

    q, k [B, H, L, E + M], v [B, H, L, E]; the relative bias reads the first E features of q.
    padding: bool [B, L], True on padding. dropout: share of the attention weights that is dropped.
    A query without a visible key gets zeros -> [B, H, L, E]. Differentiable once.
    """
    batch, heads, length, _ = v.shape
    tiles = tiles_of(pattern, length, q.device)
    farthest = max(tile.farthest for tile in tiles)
    vectors = pattern.relative_vectors(farthest, min(tile.nearest for tile in tiles))
    largest = batch * max(tile.n_queries * tile.n_keys for tile in tiles) * q.element_size()
    together = TILE_BYTES // max(1, largest) if q.device.type == "cpu" else heads
    plan = _Plan(tiles, max(1, min(heads, together)), farthest, padding, dropout)
    if vectors is not None:
        vectors = vectors.to(q.dtype)  # [H, F, n, E]
    with _without_autocast(q):
        by_head = [x.transpose(0, 1) for x in (q, k, v)]  # 3 x [H, B, L, .]
        y: Tensor = _Tiled.apply(*by_head, vectors, plan)  # [H, B, L, E]
    return y.transpose(0, 1)  # [B, H, L, E]


def queries_per_tile(device: torch.device) -> int:
    """Number of queries of a tile: more on a GPU, where each tile is several kernel launches."""
    return 128 if device.type == "cpu" else 512


class Tile(NamedTuple):
    """Queries and the keys that some of them see."""

    queries: slice
    keys: slice
    partial_masks: tuple[tuple[slice, Tensor], ...]
    """Runs of keys, counted from the tile's first, of which some are hidden: bool [Q, keys of the
    run], True where hidden."""
    farthest: int
    """Largest distance query - key of the tile's pairs."""
    nearest: int
    """Smallest such distance, at least 0 where the pattern is causal."""

    @property
    def n_queries(self) -> int:
        return int(self.queries.stop - self.queries.start)

    @property
    def n_keys(self) -> int:
        return int(self.keys.stop - self.keys.start)


def tiles_of(pattern: MaskPattern, length: int, device: torch.device) -> tuple[Tile, ...]:
    """Tiles that hold every visible pair of positions 0..L-1 once."""
    kinds = pattern.query_kinds  # a tile begins with a query of kind 0
    queries = -(-queries_per_tile(device) // kinds) * kinds
    position = torch.arange(length, device=device)
    tiles = []
    for start in range(0, length, queries):
        stop = min(start + queries, length)
        span = pattern.key_span(start, stop, length)
        runs = [(span.first, span.first_full), (span.stop_full, span.stop)]
        if span.first_full >= span.stop_full:
            runs = [(span.first, span.stop)]
        masks = tuple(
            (
                slice(first - span.first, end - span.first),
                ~pattern.visible(position[start:stop, None], position[first:end]),  # [Q, run]
            )
            for first, end in runs
            if first < end
        )
        tiles.append(
            Tile(
                queries=slice(start, stop),
                keys=slice(span.first, span.stop),
                partial_masks=masks,
                farthest=stop - 1 - span.first,
                nearest=max(0, start - span.stop + 1) if pattern.causal else start - span.stop + 1,
            )
        )
    return tuple(tiles)


class _Plan(NamedTuple):
    """Settings of one call."""

    tiles: tuple[Tile, ...]
    heads_together: int
    """Heads that are computed together."""
    farthest: int
    """Distance of the first relative vector."""
    padding: Tensor | None
    """Bool [B, L], True on padding."""
    dropout: float


class _Tiled(torch.autograd.Function):
    """q, k [H, B, L, E + M], v [H, B, L, E], vectors [H, F, n, E] -> [H, B, L, E]."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None, plan: _Plan
    ) -> Tensor:
        ctx.plan = plan
        ctx.random_state = _random_state(q) if plan.dropout else None
        # Memory in the order [B, L, H, E]: the output projection joins the heads without a copy.
        heads, batch, length, width = v.shape
        y = v.new_empty(batch, length, heads, width).permute(2, 0, 1, 3)  # [H, B, L, E]
        for group in _groups(q, k, v, vectors, plan):
            for tile in plan.tiles:
                weights = group.weights(tile)  # [N, Q, K]
                if plan.dropout:
                    weights.mul_(_dropout_factors(weights, plan.dropout))
                tile_y = weights.bmm(group.v[:, tile.keys])  # [N, Q, E]
                y[group.heads, :, tile.queries] = tile_y.unflatten(0, (group.n_heads, batch))
        ctx.save_for_backward(q, k, v, vectors, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, vectors, y = ctx.saved_tensors
        with _without_autocast(q), _random_numbers_from(ctx.random_state, q):
            return *_gradients(gradients[0], q, k, v, vectors, y, ctx.plan), None


def _gradients(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None, y: Tensor, plan: _Plan
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of q, k, v and the vectors, from that of the output dy [H, B, L, E]."""
    batch = q.shape[1]
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    d_vectors = None if vectors is None else torch.empty_like(vectors)
    for group in _groups(q, k, v, vectors, plan):
        heads = group.heads
        dy_group = dy[heads].flatten(0, 1).contiguous()  # [N, L, E]
        # sum_j weights[i, j] d_weights[i, j] of the softmax, with or without dropout.
        inner = _inner_product(dy_group, y[heads].flatten(0, 1))  # [N, L, 1]
        dk_group, dv_group = _zeros_like(group.k), _zeros_like(group.v)  # sums over tiles
        d_table = None if group.table is None else _zeros_like(group.table)  # [h F, n, E]
        for tile in plan.tiles:
            q_tile, dy_tile = group.q[:, tile.queries], dy_group[:, tile.queries]  # [N, Q, .]
            weights = group.weights(tile)  # [N, Q, K]
            d_weights = dy_tile.bmm(group.v[:, tile.keys].mT)  # [N, Q, K]
            if plan.dropout:
                factors = _dropout_factors(weights, plan.dropout)
                _add_product(dv_group[:, tile.keys], (weights * factors).mT, dy_tile)
                d_weights.mul_(factors)
            else:
                _add_product(dv_group[:, tile.keys], weights.mT, dy_tile)
            d_logits = d_weights.sub_(inner[:, tile.queries]).mul_(weights)  # softmax's backward
            _add_product(dk_group[:, tile.keys], d_logits.mT, q_tile)
            dq_tile = d_logits.bmm(group.k[:, tile.keys])  # [N, Q, E + M]
            if d_table is not None:
                dq_tile[..., : v.shape[-1]] += group.relative_backward(tile, d_logits, d_table)
            dq[heads, :, tile.queries] = dq_tile.mul_(group.scale).unflatten(
                0, (group.n_heads, batch)
            )
        dk[heads], dv[heads] = (
            x.unflatten(0, (group.n_heads, batch)) for x in (dk_group, dv_group)
        )
        if d_vectors is not None and d_table is not None:
            d_vectors[heads] = d_table.view_as(d_vectors[heads])
    return dq, dk, dv, d_vectors


class _Group:
    """Some heads with all rows of the batch: N = heads x B."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None, plan: _Plan, heads: slice
    ) -> None:
        self.heads, self.plan = heads, plan
        self.n_heads, self.batch = heads.stop - heads.start, q.shape[1]
        self.width = v.shape[-1]
        self.scale = self.width**-0.5
        q = q[heads].flatten(0, 1)
        self.q = torch.mul(q, self.scale, out=q.new_empty(q.shape))  # [N, L, E + M], contiguous
        self.k = k[heads].flatten(0, 1).contiguous()  # [N, L, E + M]
        self.v = v[heads].flatten(0, 1).contiguous()  # [N, L, E]
        self.kinds = 1 if vectors is None else vectors.shape[1]  # F
        self.table = None if vectors is None else vectors[heads].flatten(0, 1)  # [h F, n, E]

    def weights(self, tile: Tile) -> Tensor:
        """Softmax of the logits of one tile: [N, Q, K]."""
        q = self.q[:, tile.queries]  # [N, Q, E + M]
        logits = q.bmm(self.k[:, tile.keys].mT)  # [N, Q, K]
        if self.table is not None:
            by_kind = self._by_kind(q[..., : self.width])  # [h F, B Q / F, E]
            by_distance = by_kind.bmm(self._vectors(self.table, tile).mT)  # [h F, B Q / F, n]
            logits += skewed(self._by_row(by_distance, tile.n_queries), tile.n_keys)
        masks = tile.partial_masks
        if self.plan.padding is not None:
            padding = self.plan.padding[:, tile.keys].unsqueeze(1)  # [B, 1, K]
            masks = (*masks, (slice(None), padding.repeat(self.n_heads, 1, 1)))
        # The lowest finite number instead of -inf: a query without a visible key has no NaN.
        lowest = torch.finfo(logits.dtype).min
        for run, hidden in masks:
            logits[..., run].masked_fill_(hidden, lowest)
        weights = logits.softmax(-1)
        for run, hidden in masks:  # such a query has even weights here: they become zeros
            weights[..., run].masked_fill_(hidden, 0.0)
        return weights

    def relative_backward(self, tile: Tile, d_logits: Tensor, d_table: Tensor) -> Tensor:
        """Add to the gradient of the table; that of the tile's queries: [N, Q, E]."""
        assert self.table is not None
        vectors = self._vectors(self.table, tile)  # [h F, n, E]
        d_by_distance = self._by_kind(unskewed(d_logits, vectors.shape[1]))  # [h F, B Q / F, n]
        q = self._by_kind(self.q[:, tile.queries, : self.width])  # [h F, B Q / F, E]
        _add_product(self._vectors(d_table, tile), d_by_distance.mT, q)
        return self._by_row(d_by_distance.bmm(vectors), tile.n_queries)  # [N, Q, E]

    def _vectors(self, table: Tensor, tile: Tile) -> Tensor:
        """View of the vectors of the tile's distances, largest first: [h F, n, E]."""
        farthest = self.plan.farthest
        return table[:, farthest - tile.farthest : farthest - tile.nearest + 1]

    def _by_kind(self, x: Tensor) -> Tensor:
        """Queries grouped by position modulo F, zeros at the end: [N, Q, e] -> [h F, B Q / F, e].

        A tile begins at a multiple of F.
        """
        missing = -x.shape[1] % self.kinds
        if missing:
            x = F.pad(x, (0, 0, 0, missing))
        n, features = self.batch * (x.shape[1] // self.kinds), x.shape[-1]
        kinds = x.reshape(self.n_heads, n, self.kinds, features)  # [h, B Q / F, F, e]
        return kinds.transpose(1, 2).reshape(self.n_heads * self.kinds, n, features)

    def _by_row(self, x: Tensor, queries: int) -> Tensor:
        """The inverse: [h F, B Q / F, e] -> [N, Q, e], contiguous."""
        n, features = x.shape[1:]
        kinds = x.view(self.n_heads, self.kinds, n, features).transpose(1, 2)
        whole = -(-queries // self.kinds) * self.kinds  # Q and the zeros at the end
        rows = kinds.reshape(self.n_heads * self.batch, whole, features)
        return rows[:, :queries].contiguous()


def _groups(
    q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None, plan: _Plan
) -> Iterator[_Group]:
    for first in range(0, len(q), plan.heads_together):
        yield _Group(q, k, v, vectors, plan, slice(first, min(first + plan.heads_together, len(q))))


def skewed(by_distance: Tensor, n_keys: int) -> Tensor:
    """View of columns by falling distance as columns by key: [N, Q, n] -> [N, Q, K].

    The first key of the last query is at the largest distance, column 0; for the query before it
    is one column further. A row of keys therefore begins one column earlier in each next row: a
    stride of n - 1. With n = K (causal) the view runs on into the next row for the keys after the
    query, which the mask hides.
    """
    rows, queries, n = by_distance.shape
    from_first = by_distance.view(-1)[queries - 1 :]
    return from_first.as_strided((rows, queries, n_keys), (queries * n, n - 1, 1))


def unskewed(d_logits: Tensor, n: int) -> Tensor:
    """The transpose of `skewed`: [N, Q, K] by key -> [N, Q, n] by distance.

    d_logits is 0 for keys after the query where n = K.
    """
    rows, queries, n_keys = d_logits.shape
    # Rows of K + Q columns, of which row i begins Q - 1 - i columns later than row Q - 1.
    flat = d_logits.new_zeros(rows, queries * (n_keys + queries))
    flat[:, queries - 1 : -1].unflatten(1, (queries, -1))[..., :n_keys] = d_logits
    return flat.view(rows, queries, -1)[..., :n]


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, in the precision of the total."""
    if total.dtype == left.dtype:
        total.baddbmm_(left, right)
    else:
        total += left.bmm(right)


def _inner_product(x: Tensor, y: Tensor) -> Tensor:
    """x . y over the last axis, kept with size 1, from products in the precision of sums."""
    wide = _sum_dtype(x)
    return (x.to(wide) * y.to(wide)).sum(-1, keepdim=True).to(x.dtype)


def _sum_dtype(x: Tensor) -> torch.dtype:
    """Precision of sums of x: float32 for half precision."""
    return torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype


def _zeros_like(x: Tensor) -> Tensor:
    """Zeros of the shape of x, in the precision of sums."""
    return torch.zeros(x.shape, dtype=_sum_dtype(x), device=x.device)


def _dropout_factors(weights: Tensor, p: float) -> Tensor:
    """0 for a share p of the weights, 1 / (1 - p) for the others."""
    return F.dropout(torch.ones_like(weights), p)


def _random_state(like: Tensor) -> Tensor:
    """State of the random number generator of a device."""
    return torch.cuda.get_rng_state(like.device) if like.is_cuda else torch.get_rng_state()


@contextmanager
def _random_numbers_from(state: Tensor | None, like: Tensor) -> Iterator[None]:
    """Draw the random numbers after `state` again; the generator goes on as if none were drawn."""
    if state is None:
        yield
        return
    with torch.random.fork_rng([like.device] if like.is_cuda else []):
        if like.is_cuda:
            torch.cuda.set_rng_state(state, like.device)
        else:
            torch.set_rng_state(state)
        yield


def _without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off: the backward pass must compute the same weights as the forward pass."""
    if not torch.amp.is_autocast_available(like.device.type):
        return nullcontext()
    return torch.autocast(like.device.type, enabled=False)
