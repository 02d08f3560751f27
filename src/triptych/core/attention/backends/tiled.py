"""Attention in tiles: some queries against the keys they can reach, with its own backward pass.

No pass holds an L x L tensor of long sequences: on a CPU so many bytes of weights are kept for the
backward pass, of each group of heads the first, and all others are computed again, tile by tile. So
memory is linear in the length beyond a constant, and a tile stays in the processor's cache, which
is what makes the explicit products as fast as a fused kernel (Rabe and Staats 2021, 2112.05682,
section 2; the distances of Huang et al. 2018, section 3.4, are skewed tile by tile).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triptych.core.attention.backends.dropout import Dropped
from triptych.core.attention.backends.lanes import n_lanes, parts_of, side_by_side
from triptych.core.attention.backends.passes import as_given, by_part, room, to_keep
from triptych.core.attention.backends.skew import Distances
from triptych.core.attention.backends.spans import Tile
from triptych.core.attention.backends.tile_rows import TilePlan, TileRows, Totals


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
    sizes = [(tile.stop - tile.first) * (tile.end - tile.start) for tile in tiles]
    lanes = n_lanes(q, heads, len(q) * sum(sizes))
    most = room(q) // max(1, batch * max(sizes))  # heads, each with all sentences
    plan = TilePlan(
        tiles=tuple(tiles),
        distances=distances,
        padding=None if padding is None else padding.unsqueeze(1),  # [B, 1, L]
        dropped=Dropped.draw(dropout, len(q), max(sizes), q),
        scale=v.shape[-1] ** -0.5,
        keep=to_keep(q),
        groups=tuple(part for _, part in parts_of(1, heads, most, lanes)),
        lanes=lanes,
    )
    with as_given(q):
        y: Tensor = _Tiled.apply(q, k, v, vectors, plan)  # [H B, L, E]
    by_head = y.view(heads, batch, *y.shape[1:])  # [H, B, L, E]
    return by_head.transpose(0, 1)  # [B, H, L, E]


class _Tiled(torch.autograd.Function):
    """All heads of a batch, groups of them side by side; rows are heads x B, heads the slower."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None, plan: TilePlan
    ) -> Tensor:
        y = q.new_empty(*q.shape[:2], v.shape[-1])  # [H B, L, E]
        share = plan.keep // len(plan.groups)

        def group_forward(heads: slice) -> list[Tensor]:
            return TileRows(plan, heads, (q, k, v, vectors)).forward(y, share)

        kept = side_by_side(group_forward, plan.groups, plan.lanes)
        ctx.save_for_backward(q, k, v, vectors, *chain.from_iterable(kept))
        ctx.n_kept = [len(weights) for weights in kept]
        ctx.plan = plan
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, vectors, *saved = ctx.saved_tensors
        plan: TilePlan = ctx.plan
        kept = by_part(saved, ctx.n_kept)
        totals = Totals.of(q, k, v, vectors)

        def group_backward(group: int) -> None:
            rows = TileRows(plan, plan.groups[group], (q, k, v, vectors))
            rows.backward(gradients[0], totals, kept[group])

        with as_given(q):  # somebody may call for the backward pass within autocast
            side_by_side(group_backward, range(len(kept)), plan.lanes)
        d_vectors = None
        if vectors is not None and totals.vectors is not None:
            d_vectors = totals.vectors.to(vectors.dtype)
        return totals.q, totals.k.to(k.dtype), totals.v.to(v.dtype), d_vectors, None
