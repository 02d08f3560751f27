"""Splits of data that have none: shares are held out by the hash of each item's content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


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
