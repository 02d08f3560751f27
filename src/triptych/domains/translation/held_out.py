"""Splits of a corpus that has none: a share of its sentences is held out, chosen by hash."""

from __future__ import annotations

from collections.abc import Iterable

from triptych.training.held_out import split_by_hash

Shares = dict[str, float]
"""Split -> which share of all pairs it takes, above 0; what is left is for training."""


def shares_of(validation: float, test: float) -> Shares:
    """The splits that are held out."""
    given = {"validation": validation, "test": test}
    return {split: share for split, share in given.items() if share}


def check_shares(shares: Shares, files: Iterable[str]) -> None:
    """Raise ValueError for shares that leave no training pair, or that files give already."""
    for split, share in shares.items():
        if not 0 <= share < 1:
            raise ValueError(f"{split}_share is {share}; expected 0 to below 1.")
        if split in files:
            raise ValueError(
                f"{split}_share is {share}, but the split {split} is among the files too; expected "
                "one of both."
            )
    if sum(shares.values()) >= 1:
        raise ValueError("validation_share and test_share leave nothing to train on.")


def of_split(pairs: list[tuple[str, str]], split: str, shares: Shares) -> list[tuple[str, str]]:
    """Those of the pairs that belong to train or to a split of `shares`, by their sources.

    Pairs of one source sentence lie in one split, so that no held-out source was trained on (a
    translation may be: two sources can have the same).
    """
    if not shares or (split != "train" and split not in shares):
        return pairs
    return [
        pair
        for pair in pairs
        if split_by_hash(pair[0].encode("utf-8", errors="surrogatepass"), shares) == split
    ]
