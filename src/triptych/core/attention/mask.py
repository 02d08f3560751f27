"""Mask patterns: which keys a query sees and what is added to their logits, from positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from triptych.core.attention.backends.windows import Windows


class KeySpan(NamedTuple):
    """Keys of a tile of queries; see `MaskPattern.key_span`."""

    first: int
    """First key that a query of the tile sees."""
    first_full: int
    """First key of the range that all queries of the tile see."""
    stop_full: int
    """One after the last key of the range that all queries of the tile see."""
    stop: int
    """One after the last key that a query of the tile sees."""


class MaskPattern(nn.Module, ABC):
    """Which keys a query sees, their relative logits, and which cache slot holds a key.

    All are functions of positions: int64 tensors that broadcast against each other. `visible`
    alone is enough for a new pattern; the rest has defaults.
    """

    causal: bool = True
    """Whether no query sees a key after it."""
    is_full: bool = False
    """Whether a query sees all keys, or all that are not after it where causal, without a bias."""
    windows: Windows | None
    """Blocks of queries with one window of keys each, where the pattern has that form."""

    def __init__(self) -> None:
        super().__init__()
        self.windows = None

    @abstractmethod
    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        """True where the query at one position sees the key at the other; usable in a mask_mod."""

    def key_span(self, first: int, stop: int, length: int) -> KeySpan:
        """Keys that queries first..stop-1 of a sequence see, as Python numbers.

        In the returned span, no query sees a key outside first..stop-1 and every query sees all
        keys of first_full..stop_full-1. The caller calls `visible` for the remaining keys.
        """
        end = stop if self.causal else length
        return KeySpan(0, end, end, end)

    # Relative logits ------------------------------------------------------------------------------

    def relative_index(self, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        """Index of each pair into each term of `relative_logits`: int64 [..., Q, K] a term."""
        return ()

    def relative_logits(self, q: Tensor) -> tuple[Tensor, ...]:
        """Logits of each relation before the scaling: q [B, H, Q, E] -> [B, H, Q, n] a term."""
        return ()

    def relative_bias(self, q: Tensor, index: tuple[Tensor, ...]) -> Tensor | None:
        """Sum of the relative logits of each pair: [B, H, Q, K]; None where there are none.

        index: `relative_index` of the pairs, [Q, K] or [B, Q, K] a term.
        """
        bias = None
        for logits, chosen in zip(self.relative_logits(q), index, strict=True):
            expanded = chosen.unsqueeze(-3).expand(*logits.shape[:3], -1)  # [B, H, Q, K]
            term = logits.gather(-1, expanded)  # [B, H, Q, K]
            bias = term if bias is None else bias + term
        return bias

    query_period: int = 1
    """T: query i and query i + T have the same vectors in `relative_vectors`."""

    def relative_vectors(self, farthest: int, nearest: int) -> Tensor | None:
        """Vectors e of distances farthest, farthest - 1, ..., nearest: [H, T, n, E].

        The relative bias of a query at i and a key at j is q . e[i % T, i - j], where T is
        `query_period`. None without relative logits.
        """
        return None

    # Token-dependent bias -------------------------------------------------------------------------

    uses_token_ids: bool = False
    """Whether the logits also depend on the token ids at the two positions."""

    def token_features(self, q: Tensor, k: Tensor, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        """q and k [B, H, L, E] with M more features, so that q k^T holds `token_bias` too.

        token_ids: int64 [B, L] -> [B, H, L, E + M] each. Only where `uses_token_ids`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no token-dependent bias")

    def token_classes(self, token_ids: Tensor) -> Tensor:
        """Classes of tokens that `token_bias` reads and that a cache keeps: int64, same shape."""
        return token_ids

    def token_bias(self, q: Tensor, query_classes: Tensor, key_classes: Tensor) -> Tensor:
        """Logits of pairs of tokens before the scaling: [B, H, Q, K].

        q [B, H, Q, E]; classes as `token_classes`, int64 [B, Q] and [B, K].
        """
        raise NotImplementedError(f"{type(self).__name__} has no token-dependent bias")

    # Cache ----------------------------------------------------------------------------------------

    def n_slots(self, max_length: int, lookahead: int = 0) -> int:
        """Capacity of the cache to decode at most `max_length` positions.

        lookahead: number of positions that a step may write after one that is still read.
        """
        return max_length

    def filled_length(self, length: int, n_slots: int) -> int:
        """Number of slots, from the first, that hold the first `length` positions."""
        return min(length, n_slots)

    def slot(self, position: Tensor, n_slots: int) -> Tensor:
        """Slot of a position's key: int64, the shape of `position`. By default a ring."""
        return position % n_slots

    def slot_positions(self, position: Tensor, n_slots: int) -> Tensor:
        """Position whose key each slot holds once `position` is written, below 0 for none.

        position: int64 [..., P], consecutive -> int64 [..., S].
        """
        last = position[..., -1:]
        return last - (last - torch.arange(n_slots, device=position.device)) % n_slots

    def sharing_key(self) -> Hashable:
        """Patterns with the same key have the same masks, relative indices and slots."""
        return self


def per_head_logits(q: Tensor, vectors: Tensor) -> Tensor:
    """q . e for the vectors e of each head: q [B, H, Q, E], vectors [H, n, E] -> [B, H, Q, n]."""
    batch, heads, queries, _ = q.shape
    # One product per head: `q @ vectors.mT` would copy the vectors for every row of the batch.
    rows = q.transpose(0, 1).flatten(1, 2)  # [H, B Q, E]
    logits = rows.bmm(vectors.to(q.dtype).mT)  # [H, B Q, n]
    return logits.view(heads, batch, queries, vectors.shape[1]).transpose(0, 1)  # [B, H, Q, n]
