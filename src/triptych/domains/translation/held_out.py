"""Splits of a corpus that has none: a share of its sentences is held out, chosen by hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

Shares = dict[str, float]
"""Split -> which share of all pairs it takes; what is left is for training."""


def check_shares(shares: Shares, files: Iterable[str]) -> None:
    """Raise ValueError for shares that leave no training pair, or that files give already."""
    for split, share in shares.items():
        if not 0 <= share < 1:
            raise ValueError(f"{split}_share is {share}; expected 0 to below 1.")
        if share and split in files:
            raise ValueError(
                f"{split}_share is {share}, but the split {split} is among the files too; expected "
                "one of both."
            )
    if sum(shares.values()) >= 1:
        raise ValueError("validation_share and test_share leave nothing to train on.")


def split_of(source: str, shares: Shares) -> str:
    """The split of a pair by the hash of its source: the same whatever else is in the corpus.

    Pairs of one source sentence lie in one split, so that no held-out sentence was trained on.
    """
    digest = hashlib.sha256(source.encode("utf-8", errors="surrogatepass")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    for split, share in shares.items():
        if place < share:
            return split
        place -= share
    return "train"
