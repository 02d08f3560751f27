"""Which keys a query reads, as a function of two positions, and attention by that definition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

import torch
from torch import Tensor, nn

from triptych.core.attention.reference import products


class MaskPattern(nn.Module, ABC):
    """Which keys a query reads and where a position's key is kept, as functions of positions.

    Positions are int64 tensors that broadcast against each other; a key at a position below 0 is
    an empty slot and is masked by whoever calls.
    """

    @abstractmethod
    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        """The definition: True where the query at one position reads the key at the other."""

    @abstractmethod
    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, dropout: float = 0.0
    ) -> Tensor:
        """The fast path for positions 0..L-1: q, k, v [B, H, L, E] -> [B, H, L, E].

        padding [B, L] True on padding; dropout: share of the weights that is dropped.
        """

    def relation(self, query: Tensor, key: Tensor) -> Tensor | None:
        """What a bias needs to know of two positions: int64 [..., Q, K]; None without a bias."""
        return None

    def related(self, q: Tensor) -> Tensor | None:
        """What each relation adds to q . k before the scaling: q [B, H, Q, E] -> [B, H, Q, n]."""
        return None

    def bias(self, q: Tensor, relation: Tensor | None) -> Tensor | None:
        """What is added to q . k before the scaling: q [B, H, Q, E] -> [B, H, Q, K].

        relation: as `relation` gave it, [Q, K] or [B, Q, K]; several of it stand before these axes.
        Whoever overrides this alone, without `related`, is not served by FlexAttention.
        """
        by_relation = self.related(q)  # [B, H, Q, n]
        if by_relation is None or relation is None:
            return None
        index = relation.unsqueeze(-3).expand(*by_relation.shape[:3], -1)  # [B, H, Q, K]
        return by_relation.gather(-1, index)

    reads_symbols: bool = False
    """Whether `with_symbols` has something to add."""

    def with_symbols(self, q: Tensor, k: Tensor, symbols: Tensor) -> tuple[Tensor, Tensor]:
        """Features that join q and k [B, H, L, E], so that q k^T holds `symbol_bias` too.

        symbols: what stands at the positions, int64 [B, L].
        """
        return q, k

    def noted(self, symbols: Tensor) -> Tensor:
        """What is kept of symbols, and what `symbol_bias` reads: int64 of the same form."""
        return symbols

    def symbol_bias(self, q: Tensor, query_symbols: Tensor, key_symbols: Tensor) -> Tensor:
        """What the symbols at two positions add to q . k before the scaling: [B, H, Q, K].

        q [B, H, Q, E]; symbols as `noted`, int64 [B, Q] and [B, K]. Only where `reads_symbols`.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no symbols")

    def n_slots(self, max_length: int, ahead: int = 0) -> int:
        """How many keys are kept while decoding at most `max_length` positions.

        ahead: how many positions may be written beyond one that still reads.
        """
        return max_length

    def n_used(self, length: int, n_slots: int) -> int:
        """How many of the slots, counted from the first, hold the first `length` positions."""
        return min(length, n_slots)

    def slot(self, position: Tensor, n_slots: int) -> Tensor:
        """Where a position's key is kept: int64, of the form of `position`; a ring by default."""
        return position % n_slots

    def read(self, position: Tensor, n_slots: int) -> Tensor | None:
        """Slots that the queries at `position` read: int64 [..., P] -> [..., W]; None for all."""
        return None

    def held(self, position: Tensor, slots: Tensor, n_slots: int) -> Tensor:
        """The position whose key each slot holds once `position` is written; below 0: none.

        position int64 [..., P], P in a row; slots int64 [W] or [..., W] -> int64 [..., W]; by
        default of a ring.
        """
        last = position[..., -1:]
        return last - (last - slots) % n_slots

    def kind(self) -> Hashable:
        """Patterns of the same kind give the same places; by default each is its own."""
        return self


def by_head(q: Tensor, vectors: Tensor) -> Tensor:
    """q . e for the vectors e of each head: q [B, H, Q, E], vectors [H, n, E] -> [B, H, Q, n].

    `q @ vectors.mT` would copy the vectors for every row of the batch, which took a quarter of a
    decoding step of 16 rows.
    """
    batch, heads, queries, _ = q.shape
    rows = q.transpose(0, 1).flatten(1, 2)  # [H, B Q, E]
    products = torch.bmm(rows, vectors.to(q.dtype).mT)  # [H, B Q, n]
    return products.view(heads, batch, queries, vectors.shape[1]).transpose(0, 1)  # [B, H, Q, n]


def dense(
    pattern: MaskPattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query: Tensor,
    key: Tensor,
    padding: Tensor | None,
    symbol_bias: Tensor | None = None,
) -> Tensor:
    """Attention by the definition: all logits, the pattern's mask, softmax, weighted sum.

    q [B, H, Q, E], k and v [B, H, K, E]; query [B or 1, Q] and key [B or 1, K] are positions, a
    key of -1 is an empty slot; padding [B, K] True on padding; symbol_bias [B, H, Q, K]: added to
    the bias -> [B, H, Q, E].
    """
    mask = pattern.visible(query.unsqueeze(-1), key.unsqueeze(-2))  # [B, Q, K]
    mask = mask & (key >= 0).unsqueeze(-2)
    if padding is not None:
        mask = mask & ~padding.unsqueeze(-2)
    relation = pattern.relation(query.unsqueeze(-1), key.unsqueeze(-2))  # [B, Q, K]
    bias = pattern.bias(q, relation)  # [B, H, Q, K]
    if symbol_bias is not None:
        bias = symbol_bias if bias is None else bias + symbol_bias
    return products(q, k, v, mask.unsqueeze(1), bias)
