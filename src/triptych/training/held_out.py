"""Splits of data that have none: shares are held out by the hash of each item's content.

And all of them together again: a folder that holds nothing but a test set is scored whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from triptych.errors import EmptySplitError

ALL = "all"
"""Asks `evaluate` for every split of other data than the model was trained on."""
ALL_OF_OTHER_DATA = (
    "split all is for data that the model was not trained on: give their folder with --data"
)
Part = TypeVar("Part")


def split_by_hash(key: bytes, shares: Mapping[str, float]) -> str:
    """The split of an item: the first of `shares` that its hash falls into, or else train.

    The same on every machine and whatever else is there: equal keys never lie in two splits, and a
    new item moves no other one. shares: split -> 0 to 1, in an order that must not change.
    """
    place = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") / 2**64
    end = 0.0
    for split, share in shares.items():
        end += share
        if place < end:
            return split
    return "train"


def every_split(load: Callable[[str], Part], splits: Iterable[str]) -> list[Part]:
    """What `load` gives for each split that is not empty; EmptySplitError where all are."""
    parts: list[Part] = []
    last: EmptySplitError | None = None
    for split in splits:
        try:
            parts.append(load(split))
        except EmptySplitError as empty:
            last = empty
    if not parts and last is not None:
        raise last
    return parts
