"""Attention in tiles of queries, with its own backward pass and memory linear in the length.

Each tile computes the logits of its queries and of the keys that they see; the backward pass
computes the weights of each tile again (Rabe and Staats 2021, 2112.05682, section 2). Relative
logits are skewed tile by tile (Huang et al. 2018, Music Transformer, section 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.relative_bias import RelativeBias

TILE_BYTES = 2**21
"""Bytes of weights that the heads of one tile hold together on a CPU, to stay in its cache."""


def attend_in_tiles(
    pattern: MaskPattern,
    bias: RelativeBias | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    real: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax((q k^T + relative bias) / sqrt(E)) v over the visible keys.

    q, k [B, H, L, E + M], v [B, H, L, E]; the relative bias reads as many of the first features of
    q as its vectors have.
    real: bool [B, L], False on padding. dropout: share of the attention weights that is dropped.
    A query without a visible key gets zeros -> [B, H, L, E]. Differentiable once.
    """
    batch, heads, length, width = v.shape
    period = 1 if bias is None else bias.period
    tiles = tiles_of(pattern, period, length, q.device)
    most = max(_size(tile.queries) * _size(tile.keys) for tile in tiles) * batch * q.element_size()
    together = max(1, TILE_BYTES // max(1, most)) if q.device.type == "cpu" else heads
    by_heads = [x.transpose(0, 1).split(together) for x in (q * width**-0.5, k, v)]
    tables: Sequence[Tensor | None] = [None] * len(by_heads[0])
    if bias is not None:
        beyond = min(tile.distances.start for tile in tiles)  # distances that no tile reaches
        tiles = tuple(tile.without_farthest(beyond) for tile in tiles)
        nearest = 0 if pattern.causal else 1 - length
        vectors = bias.vectors(length - 1 - beyond, nearest)  # [H, T, n, E]
        tables = vectors.to(q.dtype).split(together)  # each [h, T, n, E]
    outputs = []
    with _without_autocast(q):
        for *inputs, table in zip(*by_heads, tables, strict=True):
            n = len(inputs[0])  # h heads, N = h B rows
            hidden = None if real is None else ~real.unsqueeze(1).repeat(n, 1, 1)  # [N, 1, L]
            rows = [x.flatten(0, 1).contiguous() for x in inputs]  # 3 x [N, L, .]
            table = None if table is None else table.flatten(0, 1)  # [h T, n, E]
            seed = int(torch.randint(2**62, (), device="cpu")) if dropout else 0
            plan = _Plan(tiles, n, period, hidden, dropout, seed)
            y: Tensor = _Tiled.apply(*rows, table, plan)  # [N, L, E]
            outputs.append(y.view(n, batch, length, width).permute(1, 2, 0, 3))  # [B, L, h, E]
    # In this order of memory the output projection joins the heads without a copy.
    return torch.cat(outputs, dim=2).transpose(1, 2)  # [B, H, L, E]


def queries_per_tile(device: torch.device) -> int:
    """Number of queries of a tile: more on a GPU, where each tile is several kernel launches."""
    return 128 if device.type == "cpu" else 512


class Tile(NamedTuple):
    """Queries and the keys that some of them see."""

    queries: slice
    keys: slice
    partial_masks: tuple[tuple[slice, Tensor], ...]
    """Runs of keys, counted from the tile's first, and which are hidden: bool [Q, keys]."""
    distances: slice
    """Distances query - key of the tile's pairs, counted downwards from L - 1; without those below
    0 where the pattern is causal."""

    def without_farthest(self, n: int) -> Tile:
        """The same tile, its distances counted downwards from L - 1 - n."""
        distances = slice(self.distances.start - n, self.distances.stop - n)
        return self._replace(distances=distances)


def tiles_of(
    pattern: MaskPattern, period: int, length: int, device: torch.device
) -> tuple[Tile, ...]:
    """Tiles, from multiples of the period on, that hold every visible pair of 0..L-1 once."""
    queries = -(-queries_per_tile(device) // period) * period
    position = torch.arange(length, device=device)
    tiles = []
    for start in range(0, length, queries):
        stop = min(start + queries, length)
        first, first_full, stop_full, end = pattern.key_span(start, stop, length)
        runs = [(first, first_full), (stop_full, end)] if first_full < stop_full else [(first, end)]
        masks = tuple(
            (
                slice(run - first, run_end - first),
                ~pattern.visible(position[start:stop, None], position[run:run_end]),  # [Q, run]
            )
            for run, run_end in runs
            if run < run_end
        )
        nearest = 0 if pattern.causal else start - end + 1
        distances = slice(length - stop + first, length - nearest)
        tiles.append(Tile(slice(start, stop), slice(first, end), masks, distances))
    return tuple(tiles)


def _size(part: slice) -> int:
    return int(part.stop - part.start)


class _Plan(NamedTuple):
    """Settings of one call; its rows are N = h heads x B rows of the batch."""

    tiles: tuple[Tile, ...]
    n_heads: int
    period: int
    """`RelativeBias.period`."""
    padding: Tensor | None
    """Bool [N, 1, L], True on padding."""
    dropout: float
    seed: int
    """Of the dropped weights, which the backward pass draws again."""


class _Tiled(torch.autograd.Function):
    """q (scaled), k [N, L, E + M], v [N, L, E], vectors [h T, n, E] -> [N, L, E]."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None, plan: _Plan
    ) -> Tensor:
        ctx.plan = plan
        y = torch.empty_like(v)
        for tile in plan.tiles:
            weights = _weights(q, k, vectors, tile, plan)  # [N, Q, K]
            if plan.dropout:
                weights.mul_(_dropout_factors(weights, tile, plan))
            y[:, tile.queries] = weights.bmm(v[:, tile.keys])  # [N, Q, E]
        ctx.save_for_backward(q, k, v, vectors, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        dy = gradients[0].contiguous()
        q, k, v, vectors, y = ctx.saved_tensors
        with _without_autocast(dy):  # the weights of the forward pass
            return *_gradients(dy, q, k, v, vectors, y, ctx.plan), None


def _gradients(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None, y: Tensor, plan: _Plan
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of q, k, v and the vectors, from that of the output dy [N, L, E]."""
    sums = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
    dq = torch.empty_like(q)
    dk, dv = torch.zeros_like(k, dtype=sums), torch.zeros_like(v, dtype=sums)
    d_vectors = None if vectors is None else torch.zeros_like(vectors, dtype=sums)
    # sum_j weights[i, j] d_weights[i, j] of the softmax, with or without dropout.
    inner = (dy.to(sums) * y.to(sums)).sum(-1, keepdim=True).to(q.dtype)  # [N, L, 1]
    for tile in plan.tiles:
        queries, keys = tile.queries, tile.keys
        weights = used = _weights(q, k, vectors, tile, plan)  # [N, Q, K]
        d_weights = dy[:, queries].bmm(v[:, keys].mT)  # [N, Q, K]
        if plan.dropout:
            factors = _dropout_factors(weights, tile, plan)
            used = weights * factors
            d_weights.mul_(factors)
        _add_product(dv[:, keys], used.mT, dy[:, queries])
        d_logits = d_weights.sub_(inner[:, queries]).mul_(weights)  # of the softmax
        _add_product(dk[:, keys], d_logits.mT, q[:, queries])
        dq_tile = d_logits.bmm(k[:, keys])  # [N, Q, E + M]
        if vectors is not None and d_vectors is not None:
            part = tile.distances
            d_by_distance = _by_phase(unskewed(d_logits, _size(part)), plan)
            q_by_phase = _by_phase(q[:, queries, : vectors.shape[-1]], plan)  # [h T, B Q / T, E]
            _add_product(d_vectors[:, part], d_by_distance.mT, q_by_phase)
            d_by_phase = d_by_distance.bmm(vectors[:, part])  # [h T, B Q / T, E]
            dq_tile[..., : vectors.shape[-1]] += _by_row(d_by_phase, _size(queries), plan)
        dq[:, queries] = dq_tile
    d_vectors = None if d_vectors is None else d_vectors.to(q.dtype)
    return dq, dk.to(k.dtype), dv.to(v.dtype), d_vectors


def _weights(q: Tensor, k: Tensor, vectors: Tensor | None, tile: Tile, plan: _Plan) -> Tensor:
    """Softmax of the logits of one tile: [N, Q, K]."""
    q = q[:, tile.queries]  # [N, Q, E + M]
    logits = q.bmm(k[:, tile.keys].mT)  # [N, Q, K]
    if vectors is not None:
        by_phase = _by_phase(q[..., : vectors.shape[-1]], plan)  # [h T, B Q / T, E]
        by_distance = by_phase.bmm(vectors[:, tile.distances].mT)  # [h T, B Q / T, n]
        logits += skewed(_by_row(by_distance, q.shape[1], plan), logits.shape[2])
    masks = tile.partial_masks
    if plan.padding is not None:
        masks = (*masks, (slice(None), plan.padding[..., tile.keys]))
    # The lowest finite number instead of -inf: a query without a visible key has no NaN.
    lowest = torch.finfo(logits.dtype).min
    for run, hidden in masks:
        logits[..., run].masked_fill_(hidden, lowest)
    weights = logits.softmax(-1)
    for run, hidden in masks:  # such a query has even weights here: they become zeros
        weights[..., run].masked_fill_(hidden, 0.0)
    return weights


def _by_phase(x: Tensor, plan: _Plan) -> Tensor:
    """Queries grouped by position modulo T, zeros at the end: [N, Q, e] -> [h T, B Q / T, e]."""
    missing = -x.shape[1] % plan.period  # a tile begins at a multiple of T
    if missing:
        x = F.pad(x, (0, 0, 0, missing))
    return rearrange(x, "(h b) (q t) e -> (h t) (b q) e", h=plan.n_heads, t=plan.period)


def _by_row(x: Tensor, n_queries: int, plan: _Plan) -> Tensor:
    """The inverse of `_by_phase`: [h T, B Q / T, e] -> [N, Q, e], contiguous."""
    sizes = {"h": plan.n_heads, "t": plan.period, "q": -(-n_queries // plan.period)}
    rows = rearrange(x, "(h t) (b q) e -> (h b) (q t) e", **sizes)  # [N, Q + missing, e]
    return rows[:, :n_queries].contiguous()


def skewed(by_distance: Tensor, n_keys: int) -> Tensor:
    """View of columns by falling distance as columns by key: [N, Q, n] -> [N, Q, K].

    The first key of the last query is at the largest distance, column 0; for the query before it
    one column further: a stride of n - 1. With n = K (causal) the view runs on into the next row
    for the keys after the query, which the mask hides.
    """
    rows, queries, n = by_distance.shape
    from_first = by_distance.view(-1)[queries - 1 :]
    return from_first.as_strided((rows, queries, n_keys), (queries * n, n - 1, 1))


def unskewed(d_logits: Tensor, n: int) -> Tensor:
    """The transpose of `skewed`: by key [N, Q, K], 0 after the query where n = K -> [N, Q, n]."""
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


def _dropout_factors(weights: Tensor, tile: Tile, plan: _Plan) -> Tensor:
    """0 for a share of the weights, 1 / (1 - share) for the others; the same in every call."""
    generator = torch.Generator(weights.device).manual_seed(plan.seed + tile.queries.start)
    kept = 1 - plan.dropout
    return torch.empty_like(weights).bernoulli_(kept, generator=generator).div_(kept)


def _without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off, where the device has it."""
    if not torch.amp.is_autocast_available(like.device.type):
        return nullcontext()
    return torch.autocast(like.device.type, enabled=False)
