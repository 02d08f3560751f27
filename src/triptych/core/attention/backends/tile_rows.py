"""Some heads of a batch, tile by tile: the products of attention and those of its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from triptych.core.attention.backends.dropout import Dropped
from triptych.core.attention.backends.passes import wide_dtype
from triptych.core.attention.backends.skew import Distances, Phases, skewed, unskewed
from triptych.core.attention.backends.spans import Tile


class TilePlan(NamedTuple):
    """What does not change between the passes."""

    tiles: tuple[Tile, ...]
    distances: Distances | None
    padding: Tensor | None
    """Bool [B, 1, L]."""
    dropped: Dropped | None
    scale: float
    """1 / sqrt(E)."""
    keep: int
    """Bytes of weights to keep for the backward pass."""
    groups: tuple[slice, ...]
    """Heads that are computed together."""
    lanes: int
    """Groups that are computed side by side."""


class Totals(NamedTuple):
    """Gradients to fill: of q [H B, L, E + M]; in which parts add up, of k, v and the vectors."""

    q: Tensor
    k: Tensor
    v: Tensor
    vectors: Tensor | None

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None) -> Totals:
        """Zeros, in float32 where the tensors have half precision."""
        empty = torch.empty_like(q, memory_format=torch.contiguous_format)
        given = (k, v) if vectors is None else (k, v, vectors)
        zeros = [torch.zeros(x.shape, dtype=wide_dtype(x), device=x.device) for x in given]
        return cls(empty, zeros[0], zeros[1], zeros[2] if vectors is not None else None)


class TileRows:
    """Whole heads of a batch, N = heads x B rows, the heads the slower; M as `attend_in_tiles`."""

    def __init__(
        self,
        plan: TilePlan,
        heads: slice,
        inputs: tuple[Tensor, Tensor, Tensor, Tensor | None],
    ) -> None:
        q, k, v, vectors = inputs
        self.plan = plan
        self.heads = heads
        batch = len(q) // plan.groups[-1].stop  # where the last group stops the heads end
        self.rows = slice(heads.start * batch, heads.stop * batch)
        # The rows of one head lie apart, as the projection left them. Products read such a matrix
        # in two to three times the time, and each is read by many tiles.
        q = q[self.rows]
        queries = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        self.queries = torch.mul(q, plan.scale, out=queries)  # [N, L, E + M]
        self.keys = k[self.rows].contiguous()  # [N, L, E + M]
        self.values = v[self.rows].contiguous()  # [N, L, E]
        self.vectors = None if vectors is None else vectors[heads]  # [h, (F,) n, E]

    def forward(self, y: Tensor, keep: int) -> list[Tensor]:
        """Fill the rows of y [H B, L, E]; the weights to keep, at most so many bytes."""
        kept: list[Tensor] = []
        y_rows = y[self.rows]
        for number, tile in enumerate(self.plan.tiles):
            weights = used = self._weights(tile)  # [N, Q, K]
            if self.plan.dropped is not None:
                used = weights * self.plan.dropped.factors(weights, number, self.rows.start)
            both = [weights] if used is weights else [weights, used]
            keep -= sum(x.nbytes for x in both)
            if keep >= 0:
                kept += both
            values = self.values[:, tile.start : tile.end]  # [N, K, E]
            y_rows[:, tile.first : tile.stop] = torch.bmm(used, values)  # [N, Q, E]
        return kept

    def backward(self, dy: Tensor, totals: Totals, kept: Sequence[Tensor]) -> None:
        """Fill and add to the rows of the gradients. kept: what `forward` returned."""
        dy = dy[self.rows].contiguous()  # [N, L, E]
        dq, dk, dv = (x[self.rows] for x in totals[:3])
        d_vectors = None if totals.vectors is None else totals.vectors[self.heads]
        weights_kept = iter(kept)
        for number, tile in enumerate(self.plan.tiles):
            queries, keys = slice(tile.first, tile.stop), slice(tile.start, tile.end)
            q_tile, dy_tile = self.queries[:, queries], dy[:, queries]  # 2 x [N, Q, .]
            weights = next(weights_kept, None)  # [N, Q, K]
            if weights is None:
                weights = self._weights(tile)
            d_weights = torch.bmm(dy_tile, self.values[:, keys].mT)  # [N, Q, K]
            used = weights
            if self.plan.dropped is not None:
                factors = self.plan.dropped.factors(weights, number, self.rows.start)
                left = next(weights_kept, None)
                used = weights * factors if left is None else left
                d_weights.mul_(factors)
            _add_product(dv[:, keys], used.mT, dy_tile)
            d_logits = torch._softmax_backward_data(
                d_weights, weights, -1, weights.dtype, grad_input=d_weights
            )
            _add_product(dk[:, keys], d_logits.mT, q_tile)
            dq_tile = torch.bmm(d_logits, self.keys[:, keys])  # [N, Q, E + M]
            if d_vectors is not None:
                self._backward_of_distances(tile, d_logits, dq_tile, d_vectors)
            dq[:, queries] = dq_tile.mul_(self.plan.scale)

    def _logits(self, tile: Tile) -> Tensor:
        """(q k^T + q e^T) / sqrt(E) of one tile: [N, Q, K]."""
        q_tile = self.queries[:, tile.first : tile.stop]  # [N, Q, E + M]
        k_tile = self.keys[:, tile.start : tile.end]  # [N, K, E + M]
        if self.vectors is None:
            return torch.bmm(q_tile, k_tile.mT)  # [N, Q, K]
        phases, vectors = self._vectors_of(tile, self.vectors)
        grouped = phases.apart(q_tile[..., : vectors.shape[-1]])  # [h, B Q, E]
        by_distance = phases.together(torch.bmm(grouped, vectors.mT), len(q_tile))  # [N, Q, n]
        return _sum(skewed(by_distance, k_tile.shape[1]), q_tile, k_tile.mT)  # [N, Q, K]

    def _weights(self, tile: Tile) -> Tensor:
        """The softmax of one tile: [N, Q, K]."""
        logits = self._logits(tile)
        lowest = torch.finfo(logits.dtype).min
        _fill_hidden(logits, tile, lowest)
        padding = self.plan.padding
        if padding is None:
            return logits.softmax(-1)
        hidden = padding[..., tile.start : tile.end].repeat(
            self.heads.stop - self.heads.start, 1, 1
        )
        weights = logits.masked_fill_(hidden, lowest).softmax(-1)
        # A row without any key has spread its weight evenly: it gets none.
        _fill_hidden(weights, tile, 0.0)
        return weights.masked_fill_(hidden, 0.0)

    def _vectors_of(self, tile: Tile, table: Tensor) -> tuple[Phases, Tensor]:
        """How the tile's queries are sorted, and its vectors or their gradients: [h F, n, E]."""
        assert self.plan.distances is not None
        first, last = self.plan.distances.of(tile)
        phases = Phases.of(self.plan.distances, tile, len(table))
        return phases, phases.vectors(table, first, last)

    def _backward_of_distances(
        self, tile: Tile, d_logits: Tensor, dq_tile: Tensor, d_table: Tensor
    ) -> None:
        """Add what the logits by distance give to a tile's dq and to the vectors' gradients."""
        assert self.vectors is not None
        phases, vectors = self._vectors_of(tile, self.vectors)  # [h F, n, E]
        width = vectors.shape[-1]
        grouped = phases.apart(unskewed(d_logits, vectors.shape[1]))  # [h F, B Q / F, n]
        dq_tile[..., :width] += phases.together(torch.bmm(grouped, vectors), len(dq_tile))
        q_tile = phases.apart(self.queries[:, tile.first : tile.stop, :width])  # [h F, B Q / F, E]
        _, d_vectors = self._vectors_of(tile, d_table)
        _add_product(d_vectors, grouped.mT, q_tile)


def _fill_hidden(x: Tensor, tile: Tile, value: float) -> None:
    """Set what the tile's edges hide, in x [N, Q, K]."""
    for edge in tile.edges:
        run = slice(edge.first, edge.first + edge.hidden.shape[-1])
        x[..., run].masked_fill_(edge.hidden, value)


def _sum(logits: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """logits + left @ right, contiguous.

    Two cores with AMX, L 2048: added afterwards 0.83 of the time in float32, 1.2 in bfloat16.
    """
    if logits.element_size() > 2:
        return torch.bmm(left, right).add_(logits)
    return torch.baddbmm(logits, left, right)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, in total's own precision where that is the factors' too."""
    if total.dtype == left.dtype:
        total.baddbmm_(left, right)
    else:
        total += torch.bmm(left, right)
