"""Weights with a row for each symbol of the vocabulary, taken over from another vocabulary."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

NEW = -1
"""Row of a symbol that the other vocabulary does not have."""


OTHER_VOCABULARY = (
    "; run.start.init_vocabulary data keeps the weights of the symbols that both have and starts "
    "the others anew"
)
"""End of the refusal of initial weights that belong to another vocabulary."""


class RowMap(NamedTuple):
    """The rows of another model's weights from which a model takes the rows of its symbols."""

    what: str
    """Kind of the symbols in the plural, such as tokens."""
    n_before: int
    """Number of symbols of the other model."""
    rows: list[int]
    """For each symbol its row in the other model, or NEW."""
    weights: tuple[str, ...]
    """Names of the weights: [n, ...], or [groups x n, ...] with all n symbols in each group."""

    @property
    def n_new(self) -> int:
        """Number of symbols without a row in the other model."""
        return self.rows.count(NEW)

    def __str__(self) -> str:
        return f"{len(self.rows) - self.n_new:,} {self.what} copied, {self.n_new:,} new"


def same_symbols(
    what: str, before: Sequence[Hashable], now: Sequence[Hashable], weights: tuple[str, ...]
) -> RowMap:
    """Return the map in which a symbol takes the row of the equal symbol of the other model."""
    rows = {symbol: row for row, symbol in enumerate(before)}
    return RowMap(what, len(before), [rows.get(symbol, NEW) for symbol in now], weights)


def with_rows(
    initial: Mapping[str, Tensor], other: Mapping[str, Tensor], maps: Sequence[RowMap]
) -> dict[str, Tensor]:
    """Return the weights of another model with the rows of this model's symbols.

    initial: weights of this model as they were drawn; new symbols keep their rows. A weight that
    the other model does not have, or has in another shape, is returned as it is there.
    """
    weights = dict(other)
    for each in maps:
        known = [row for row, source in enumerate(each.rows) if source != NEW]
        sources = [source for source in each.rows if source != NEW]
        for name in each.weights:
            if name not in other or len(other[name]) % each.n_before:
                continue
            before = other[name].unflatten(0, (-1, each.n_before))  # [groups, n_before, ...]
            now = initial[name].unflatten(0, (-1, len(each.rows))).clone()  # [groups, n, ...]
            if now[:, 0].shape == before[:, 0].shape:
                now[:, known] = before[:, sources].to(now)
                weights[name] = now.flatten(0, 1)
    return weights
