"""Attention in tiles: some queries against the keys they can reach, with its own backward pass.

No pass holds an L x L tensor of long sequences: on a CPU the first so many bytes of weights are
kept for the backward pass, which computes all others again, tile by tile. So memory is linear in
the length beyond a constant, and a tile stays in the processor's cache, which is what makes the
explicit products as fast as a fused kernel (Rabe and Staats 2021, 2112.05682, section 2; the
distances of Huang et al. 2018, section 3.4, are skewed tile by tile).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triptych.core.attention.kernels.dropout import Dropped
from triptych.core.attention.kernels.skew import Distances, Phases, skewed, unskewed
from triptych.core.attention.kernels.spans import Tile

KEPT = 2**26
"""Bytes of weights that one call on a CPU keeps for its backward pass; see `to_keep`.

Relative attention, forward and backward, 8 heads of 64, two cores with AVX512-BF16, milliseconds
without and with them: float32 L 1024 52 / 43, 8 x 512 106 / 85 (half of them fit), L 2048 178 / 157
(nearly all); bfloat16 L 1024 27 / 22, 8 x 512 56 / 47. With dropout the weights that are left are
kept beside all of them: 0.93 to 0.96 of the time in bfloat16, the same in float32.
"""


def attend_in_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tiles: Sequence[Tile],
    *,
    vectors: Tensor | None = None,
    distances: Distances | None = None,
    padding: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax((q k^T + q e^T) / sqrt(E)) v over the keys that the tiles leave.

    q, k [B, H, L, E + M], v [B, H, L, E]; the tiles' queries make up 0..L-1. What stands in M is
    for q k^T alone. vectors [H, n, E], or [H, phases, n, E]: e of each distance query - key, in
    the order that `distances` says. padding [B, L] True on padding. dropout: share of the weights
    dropped. A query that sees no key gets zeros -> [B, H, L, E].
    """
    batch, heads = q.shape[:2]
    q, k, v = (x.transpose(0, 1).flatten(0, 1) for x in (q, k, v))  # [H B, L, E]
    if padding is not None:
        padding = padding.unsqueeze(1)  # [B, 1, L]
    largest = max((tile.stop - tile.first) * (tile.end - tile.start) for tile in tiles)
    dropped = Dropped.draw(dropout, len(q), largest, q)
    at_once = max(1, batch) * min(heads, max(1, room(q) // max(1, batch * largest)))
    scale = v.shape[-1] ** -0.5
    plan = _Plan(tuple(tiles), distances, at_once, padding, dropped, scale, to_keep(q))
    with as_given(q):
        y: Tensor = _Tiled.apply(q, k, v, vectors, plan)  # [H B, L, E]
    by_head = y.view(heads, batch, *y.shape[1:])  # [H, B, L, E]
    return by_head.transpose(0, 1)  # [B, H, L, E]


def room(like: Tensor) -> int:
    """Weights of a tile at most, so that they stay in a core's cache."""
    return (2**21 if like.device.type == "cpu" else 2**28) // like.element_size()


def to_keep(like: Tensor) -> int:
    """Bytes of weights that a call keeps now: none where no backward pass will come.

    And none but on a CPU: on a GPU, where a tile is larger than all that, it was not measured.
    """
    return KEPT if torch.is_grad_enabled() and like.device.type == "cpu" else 0


def as_given(like: Tensor) -> AbstractContextManager[object]:
    """Without autocast: what is kept must have the precision that the backward pass computes in.

    Autocast's softmax is float32 on a GPU for bfloat16 inputs.
    """
    kind = like.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def like_projected(x: Tensor) -> Tensor:
    """Empty [B, H, L, E] whose memory is [B, L, H, E], so that joining the heads copies nothing."""
    batch, heads, length, width = x.shape
    return x.new_empty(batch, length, heads, width).transpose(1, 2)  # [B, H, L, E]


class _Plan(NamedTuple):
    """What does not change between the passes; a part of it for a group of heads."""

    tiles: tuple[Tile, ...]
    distances: Distances | None
    at_once: int
    """Rows (heads x batch, heads the slower) that are computed together: whole heads."""
    padding: Tensor | None
    """Bool [B, 1, L]."""
    dropped: Dropped | None
    scale: float
    """1 / sqrt(E)."""
    keep: int
    """Bytes of weights to keep for the backward pass."""


class _Tiled(torch.autograd.Function):
    """The loop over groups of heads and tiles; N = heads x B rows, heads the slower."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None, plan: _Plan
    ) -> Tensor:
        y = q.new_empty(*q.shape[:2], v.shape[-1])  # [H B, L, E]
        kept: list[Tensor] = []
        room_left = plan.keep
        for rows, group_vectors in _groups(q, vectors, plan):
            q_rows, k_rows, v_rows, y_rows = q[rows], k[rows], v[rows], y[rows]
            for number, tile in enumerate(plan.tiles):
                weights = used = _weights(q_rows, k_rows, group_vectors, tile, plan)  # [N, Q, K]
                if plan.dropped is not None:
                    used = weights * plan.dropped.factors(weights, number, rows.start)
                both = [weights] if used is weights else [weights, used]
                room_left -= sum(x.nbytes for x in both)
                if room_left >= 0:
                    kept += both
                values = v_rows[:, tile.start : tile.end]  # [N, K, E]
                y_rows[:, tile.first : tile.stop] = torch.bmm(used, values)  # [N, Q, E]
        ctx.save_for_backward(q, k, v, vectors, *kept)
        ctx.plan = plan
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, vectors, *kept = ctx.saved_tensors
        kept_weights = iter(kept)
        (dy,) = gradients
        wide = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
        dq = torch.empty_like(q, memory_format=torch.contiguous_format)
        dk, dv = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (k, v))
        d_vectors = None
        if vectors is not None:
            d_vectors = torch.zeros(vectors.shape, dtype=wide, device=vectors.device)
        totals = zip(_groups(q, vectors, ctx.plan), _groups(dk, d_vectors, ctx.plan), strict=True)
        with as_given(q):  # somebody may call for the backward pass within autocast
            for (rows, group_vectors), (_, group_d_vectors) in totals:
                given = (q[rows], k[rows], v[rows], group_vectors, dy[rows])
                added = (dq[rows], dk[rows], dv[rows], group_d_vectors)
                for number in range(len(ctx.plan.tiles)):
                    _backward_of_tile(ctx.plan, number, rows.start, given, added, kept_weights)
        if vectors is not None and d_vectors is not None:
            d_vectors = d_vectors.to(vectors.dtype)
        return dq, dk.to(k.dtype), dv.to(v.dtype), d_vectors, None


def _groups(
    rows: Tensor, vectors: Tensor | None, plan: _Plan
) -> Iterator[tuple[slice, Tensor | None]]:
    """Slices of the rows that are computed together, each with its heads' vectors."""
    for first in range(0, len(rows), plan.at_once):
        group = slice(first, min(first + plan.at_once, len(rows)))
        if vectors is None:
            yield group, None
        else:
            batch = len(rows) // len(vectors)
            yield group, vectors[group.start // batch : group.stop // batch]


def _backward_of_tile(
    plan: _Plan,
    number: int,
    row: int,
    given: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor],
    totals: tuple[Tensor, Tensor, Tensor, Tensor | None],
    kept: Iterator[Tensor],
) -> None:
    """Add what one tile of one group gives to the gradients; `kept` goes on by what it takes.

    row: the first of the group.
    """
    q, k, v, vectors, dy = given
    dq, dk, dv, d_vectors = totals
    tile = plan.tiles[number]
    scale = plan.scale
    queries, keys = slice(tile.first, tile.stop), slice(tile.start, tile.end)
    dy_tile = dy[:, queries]  # [N, Q, E]
    weights = next(kept, None)  # [N, Q, K]
    if weights is None:
        weights = _weights(q, k, vectors, tile, plan)
    d_weights = torch.bmm(dy_tile, v[:, keys].mT)  # [N, Q, K]
    used = weights
    if plan.dropped is not None:
        factors = plan.dropped.factors(weights, number, row)
        left = next(kept, None)
        used = weights * factors if left is None else left
        d_weights.mul_(factors)
    _add_product(dv[:, keys], used.mT, dy_tile)
    d_logits = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
    q_scaled = q[:, queries] * scale
    _add_product(dk[:, keys], d_logits.mT, q_scaled)
    dq_tile = torch.bmm(d_logits, k[:, keys])  # [N, Q, E]
    if vectors is not None and d_vectors is not None and plan.distances is not None:
        first, last = plan.distances.of(tile)
        phases = Phases.of(plan.distances, tile, len(vectors))
        grouped = phases.apart(unskewed(d_logits, last - first))  # [H, B Q, n]
        used_vectors = phases.vectors(vectors, first, last)  # [H, n, E]
        width = vectors.shape[-1]
        dq_tile[..., :width] += phases.together(torch.bmm(grouped, used_vectors), len(q))
        rows = phases.apart(q_scaled[..., :width])  # [H, B Q, E]
        _add_product(phases.vectors(d_vectors, first, last), grouped.mT, rows)
    torch.mul(dq_tile, scale, out=dq[:, queries])


def _weights(q: Tensor, k: Tensor, vectors: Tensor | None, tile: Tile, plan: _Plan) -> Tensor:
    """The softmax of one tile: [N, Q, K]."""
    q_tile = q[:, tile.first : tile.stop]  # [N, Q, E]
    k_tile = k[:, tile.start : tile.end]  # [N, K, E]
    if vectors is None or plan.distances is None:
        logits = torch.bmm(q_tile * plan.scale, k_tile.mT)  # [N, Q, K]
    else:
        first, last = plan.distances.of(tile)
        phases = Phases.of(plan.distances, tile, len(vectors))
        rows = phases.vectors(vectors, first, last)  # [H, n, E]
        grouped = phases.apart(q_tile[..., : rows.shape[-1]] * plan.scale)  # [H, B Q, E]
        by_distance = phases.together(torch.bmm(grouped, rows.mT), len(q))  # [N, Q, n]
        logits = torch.baddbmm(
            skewed(by_distance, k_tile.shape[1]), q_tile, k_tile.mT, alpha=plan.scale
        )  # [N, Q, K]
    lowest = torch.finfo(logits.dtype).min
    for edge in tile.edges:
        logits[..., edge.first : edge.first + edge.hidden.shape[-1]].masked_fill_(
            edge.hidden, lowest
        )
    if plan.padding is None:
        return logits.softmax(-1)
    hidden = plan.padding[..., tile.start : tile.end].repeat(len(q) // len(plan.padding), 1, 1)
    weights = logits.masked_fill_(hidden, lowest).softmax(-1)
    # A row without any key has spread its weight evenly: it gets none.
    for edge in tile.edges:
        weights[..., edge.first : edge.first + edge.hidden.shape[-1]].masked_fill_(edge.hidden, 0.0)
    return weights.masked_fill_(hidden, 0.0)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, in total's own precision where that is the factors' too."""
    if total.dtype == left.dtype:
        total.baddbmm_(left, right)
    else:
        total += torch.bmm(left, right)
