"""Splits of data that have none: shares are held out by the hash of each item's content.

And none held out: a folder that is nothing but a test set is scored whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from triptych.errors import UserError

ALL = "all"
"""The split that is everything there is, of other data than the model was trained on."""
ALL_OF_OTHER_DATA = (
    "split all is for data that the model was not trained on, a folder given as --data"
)


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


def check_all(source: object, data: str | Path | None) -> None:
    """Raise UserError where `all` would score what the model was trained on.

    source: of the model, with a directory. data: the folder given in its place, if one is.
    """
    if data is None:
        raise UserError(f"{ALL_OF_OTHER_DATA}; none is given")
    own = getattr(source, "directory", None)
    if own is not None and _resolved(own) == _resolved(data):
        raise UserError(f"{ALL_OF_OTHER_DATA}; {data} is the one it was trained from")


def _resolved(directory: str | Path) -> Path:
    return Path(directory).expanduser().resolve()
