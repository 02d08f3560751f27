"""Held-out items that are training items too, and training items that occur again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item", bound=Hashable)

TRAIN = "train"
LOG = logging.getLogger(__name__)


class Digests(NamedTuple):
    """Hashes of the items of a split, int64 [N] each, to be compared within one process."""

    exact: NDArray[np.int64]
    """Of the items as they are."""
    normalised: NDArray[np.int64]
    """Of what is left of them without differences that do not matter; the same array without."""

    @classmethod
    def of(
        cls, items: Iterable[Item], normalise: Callable[[Item], Hashable] | None = None
    ) -> Digests:
        """Return the digests of items: strings, bytes or tuples of these."""
        if normalise is None:
            exact = np.fromiter(map(hash, items), np.int64)  # [N]
            return cls(exact, exact)
        both = np.array([(hash(item), hash(normalise(item))) for item in items], np.int64)
        return cls(*both.reshape(-1, 2).T)  # [N] each

    @property
    def repeated(self) -> int:
        """Number of items that are, normalised, another one again."""
        ordered = np.sort(self.normalised)  # [N]
        return int((ordered[1:] == ordered[:-1]).sum())


class Leak(NamedTuple):
    """Items of a held-out split that are training items."""

    split: str
    what: str
    """Name of the items."""
    size: int
    """Items of the split."""
    exact: int
    """That are training items as they are."""
    normalised: int
    """That are training items, normalised; those of `exact` included."""

    def __str__(self) -> str:
        almost = self.normalised - self.exact
        told = f", {almost:,} of them but for capital letters and spaces" if almost else ""
        return (
            f"{self.normalised:,} of {self.size:,} {self.split} {self.what} "
            f"({self.normalised / self.size:.1%}) are in the training data{told}: scores on them "
            "do not tell how the model does on new data"
        )

    def details(self) -> dict[str, dict[str, int | str]]:
        """Return the numbers and the sentence, for the details of an evaluation."""
        return {"leak": {**self._asdict(), "sentence": str(self)}}


def find_leaks(splits: Mapping[str, Digests], what: str) -> list[Leak]:
    """Return the leaks into the splits, of those that have any; `train` is one of the splits."""
    train = [np.sort(digests) for digests in splits[TRAIN]]  # [N] each
    found = []
    for split in (split for split in splits if split != TRAIN):
        exact, inside = (_count_in(*each) for each in zip(splits[split], train, strict=True))
        if inside or exact:
            found.append(Leak(split, what, len(splits[split].exact), exact, max(exact, inside)))
    return found


def _count_in(digests: NDArray[np.int64], ordered: NDArray[np.int64]) -> int:
    """Return how many digests are among others, which are sorted."""
    if not len(ordered):
        return 0
    places = np.searchsorted(ordered, digests).clip(max=len(ordered) - 1)  # [N]
    return int((ordered[places] == digests).sum())


def warn_of_leaks(leaks: Iterable[Leak]) -> None:
    """Log a sentence about each leak."""
    for leak in leaks:
        LOG.warning("%s", leak)
