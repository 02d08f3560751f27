"""The interface that decoding needs from a model, and operations on the rows of its cache."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from triptych.core.attention.base import KVCache
from triptych.core.attention.context import StepContexts
from triptych.core.heads import Head

MEMORY = "memory_"
"""Prefix of the tensors that all hypotheses of a source sentence share."""
MIN_DROP_SHARE = 0.25
"""Smallest share of finished rows for which decoding copies the cache without them."""


class AutoregressiveModel(nn.Module, ABC):
    """A model that predicts each value from those before it, and keeps a cache between steps.

    Sampling and beam search use this interface alone. Invariant: `prefill` of values 0..P-1
    and then steps give the same predictions as one pass over all values.
    """

    head: Head
    """Output distribution of a position."""
    value_shape: tuple[int, ...] = ()
    """Shape of one position's value: () for a token, (C,) for a pixel of C channels."""

    @abstractmethod
    def init_cache(
        self, batch: int, max_length: int, *, lookahead: int = 0, condition: Tensor | None = None
    ) -> KVCache:
        """Storage for predictions of at most `max_length` positions.

        lookahead: number of positions that a step reads after its first one, or steps back.
        condition [B, ...]: input of all predictions, such as class vectors; kept in the cache.
        """

    @abstractmethod
    def prefill(self, values: Tensor, cache: KVCache, previous: Tensor | None = None) -> Tensor:
        """Read values 0..P-1 (P may be 0) into an empty cache and predict value P.

        values int64 [B, P, *value_shape]; previous int64 [B]: the value before the first one ->
        parameters of the head [B, Z], Z numbers per position.
        """

    @abstractmethod
    def multi_step(
        self,
        values: Tensor,
        positions: Tensor,
        cache: KVCache,
        contexts: StepContexts | None = None,
    ) -> Tensor:
        """Read the values before P consecutive positions and predict the values at them.

        values int64 [B, P, *value_shape]; positions int64 [P], on the device. P above 1, and
        positions before the last one read, which are then overwritten, only as far as the cache's
        lookahead. contexts: the element of `step_contexts` for a single position -> [B, P, Z].
        """

    def step(
        self, value: Tensor, position: Tensor, cache: KVCache, contexts: StepContexts | None = None
    ) -> Tensor:
        """Read the value before `position` and predict the value at it.

        value int64 [B, *value_shape]; position int64 [] -> [B, Z].
        """
        return self.multi_step(value.unsqueeze(1), position.view(1), cache, contexts)[:, 0]

    def step_contexts(self, positions: Tensor, cache: KVCache) -> list[StepContexts]:
        """Contexts of the steps at positions int64 [R], computed at once."""
        return [{} for _ in range(positions.shape[0])]

    def cache_view(self, cache: KVCache, length: int) -> KVCache:
        """Views of the part of the cache that holds the first `length` positions."""
        return cache


def select_rows(cache: KVCache, rows: Tensor, memory_rows: Tensor | None = None) -> KVCache:
    """A copy of these rows int64 [n] of the cache; of its memory `memory_rows`, default the same.

    The memory has a row per source sentence, all other tensors have one per hypothesis.
    """
    memory_rows = rows if memory_rows is None else memory_rows
    return [
        {
            name: tensor.index_select(0, memory_rows if name.startswith(MEMORY) else rows)
            for name, tensor in layer.items()
        }
        for layer in cache
    ]


def expand_rows(cache: KVCache, times: int) -> KVCache:
    """A copy of the cache with each row repeated: B -> B x times; the memory is shared."""
    return [
        {
            name: tensor if name.startswith(MEMORY) else tensor.repeat_interleave(times, dim=0)
            for name, tensor in layer.items()
        }
        for layer in cache
    ]


def reorder_rows(cache: KVCache, rows: Tensor) -> None:
    """Replace row i by row rows[i] in place; rows int64 [B]; the memory is unchanged."""
    for layer in cache:
        for name, tensor in layer.items():
            if not name.startswith(MEMORY):
                tensor.copy_(tensor.index_select(0, rows))
