"""Splits of data: by a hash of each item, and the split `all` of a user's folder."""

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from triptych.errors import UserError
from triptych.files.folders import named

Source = TypeVar("Source")

LOG = logging.getLogger(__name__)

ALL = "all"
"""Name of the split that contains all items of a folder which the model was not trained on."""

SPLIT_WORDS = {
    **dict.fromkeys(("train", "training", "trainset", "trn"), "train"),
    **dict.fromkeys(("validation", "valid", "validate", "val", "valset"), "validation"),
    **dict.fromkeys(("dev", "devset", "development", "newsdev"), "validation"),
    **dict.fromkeys(("test", "testing", "testset", "tst", "devtest", "newstest"), "test"),
    **dict.fromkeys(("eval", "evaluation"), "test"),
}
"""Word in the name of a file or folder, in lower case -> split."""


def split_in_name(name: str) -> str | None:
    """Return the split that a word of a path says; None without one.

    `TestSet/a.txt`, `seg_test`, `test2017.en` and `x-test.tsv` are of the test. The name itself
    decides, then the folder that holds it, and so on. Raises UserError for words of two splits.
    """
    for part in reversed(name.split("/")):
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", part)
        splits = {SPLIT_WORDS[word.lower()]: word for word in words if word.lower() in SPLIT_WORDS}
        if len(splits) > 1:
            raise UserError(
                f"{name} may be of {' or of '.join(splits)}, because of the words "
                f"{' and '.join(splits.values())}; expected a name with one of them"
            )
        if splits:
            return next(iter(splits))
    return None


def split_by_hash(key: bytes, shares: Mapping[str, float]) -> str:
    """Return the split of an item, by its content alone: new items move no other one.

    shares: split -> share of the items, 0 to 1, in a fixed order; the others are in train.
    """
    return split_at(hash_position(key), shares)


def hash_position(key: bytes) -> float:
    """Return the place of a key in [0, 1), uniform over keys."""
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") / 2**64


def split_at(position: float, shares: Mapping[str, float]) -> str:
    """Return the split of a place in [0, 1), as `split_by_hash` does."""
    end = 0.0
    for split, share in shares.items():
        end += share
        if position < end:
            return split
    return "train"


def check_shares(validation_share: float, test_share: float) -> None:
    """Raise ValueError for shares of held-out items that leave none for training."""
    if validation_share + test_share >= 1:
        raise ValueError(
            f"validation_share is {validation_share} and test_share is {test_share}; expected "
            "shares that leave items to train on"
        )


def warn_of_skipped(source: str | Path, skipped: list[str], n_files: int) -> None:
    """Log the number of files that could not be used, and the names or reasons of five."""
    if skipped:
        reasons = named(skipped)
        LOG.warning("%s: skipped %d of %d files: %s", source, len(skipped), n_files, reasons)


def source_to_score(source: Source, split: str, data: str | Path | None) -> Source:
    """Return the data source to score, of the folder `data` where one is given.

    Raises UserError where the source reads no folder, and for `all` of the training's data.
    """
    trained_from: Any = getattr(source, "directory", None)
    if data is not None and trained_from is None:
        raise UserError(
            f"the data of this model come from {type(source).__name__}, which reads no folder"
        )
    if split == ALL and (data is None or _resolved(data) == _resolved(trained_from)):
        raise UserError(
            "split all is for data that the model was not trained on: expected their folder as "
            f"--data, got {data or 'none'}"
        )
    return source if data is None else replace(source, directory=str(data))  # type: ignore[type-var]


def _resolved(directory: str | Path) -> Path:
    return Path(directory).expanduser().resolve()
