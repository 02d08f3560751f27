"""Parts of data sources: splits by hash, the split `all`, and synthetic data of known entropy."""

from __future__ import annotations

import hashlib
import logging
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from triptych.errors import UserError
from triptych.types import Checked, FractionBelowOne, IntAboveOne, OpenUnitInterval

Source = TypeVar("Source")
Item = TypeVar("Item")
Numbers = NDArray[np.int64]

LOG = logging.getLogger(__name__)

ALL = "all"
"""Name of the split that contains all items of a folder which the model was not trained on."""


def split_by_hash(key: bytes, shares: Mapping[str, float]) -> str:
    """Return the split of an item: a function of its content alone.

    Equal keys are in one split, and new items move no other item. shares: split -> share of the
    items, 0 to 1, in a fixed order; the remaining items are in the split train.
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


@dataclass(frozen=True)
class TextFilesOfSplits(Checked, ABC, Generic[Item]):
    """Text in files of a folder, of which shares of the training items may be held out."""

    directory: str = "."
    """Folder that holds the files."""
    validation_share: FractionBelowOne = field(default=0.0, kw_only=True)
    """Share (0 to 1) of the training items that is held out for validation, chosen by a hash of
    their text; 0 if the files have a validation split."""
    test_share: FractionBelowOne = field(default=0.0, kw_only=True)
    """Share (0 to 1) of the training items that is held out for test, in the same way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.validation_share, self.test_share)
        for split in self.shares:
            if split in self.file_splits():
                raise ValueError(
                    f"{split}_share is above 0, but the split {split} has its own rows or files; "
                    "expected one of both"
                )

    @property
    def shares(self) -> dict[str, float]:
        """Shares above 0 by the split that is held out."""
        shares = {"validation": self.validation_share, "test": self.test_share}
        return {split: share for split, share in shares.items() if share}

    def splits(self) -> list[str]:
        """Return the names of all splits: those of the files, and those held out."""
        return [*self.file_splits(), *self.shares]

    def path(self, name: str) -> Path:
        """Return the path of a file of the folder; `~` is the user's home."""
        return Path(self.directory).expanduser() / name

    def items(self, split: str) -> Iterator[Item]:
        """Return the items of a split, without those held out and with those that it holds out.

        Items with equal keys are in one split.
        """
        shares = self.shares
        if not shares or split not in ("train", *shares):
            return self.read_files(split)
        every = self.read_files("train")
        return (item for item in every if split_by_hash(self.key(item).encode(), shares) == split)

    @abstractmethod
    def file_splits(self) -> list[str]:
        """Return the names of the splits that the files hold."""

    @abstractmethod
    def read_files(self, split: str) -> Iterator[Item]:
        """Yield all items that the files hold for a split, with one file in memory at a time."""

    @abstractmethod
    def key(self, item: Item) -> str:
        """Return the text of an item whose hash decides its split."""


def warn_of_skipped(source: str | Path, skipped: list[str], n_files: int) -> None:
    """Log the number of files that could not be used, and the names or reasons of five."""
    if skipped:
        reasons = ", ".join(skipped[:5]) + (", ..." if len(skipped) > 5 else "")
        LOG.warning("%s: skipped %d of %d files: %s", source, len(skipped), n_files, reasons)


def source_to_score(source: Source, split: str, data: str | Path | None) -> Source:
    """Return the data source to score, which reads the folder `data` where one is given.

    Raises UserError for a folder if the source reads none, and for the split `all` if it would
    contain the data of the training.
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


class SyntheticSource(ABC):
    """Source that draws its data from a known distribution.

    No model has a lower expected score than the entropy. A score below it by more than the sampling
    error means that the model saw the targets.
    """

    @abstractmethod
    def entropy(self) -> float:
        """Return the entropy of the distribution in the unit of `evaluate`."""


def known_entropy(source: object) -> dict[str, Any]:
    """Return {"source_entropy": value} for a synthetic source, {} for any other."""
    return {"source_entropy": source.entropy()} if isinstance(source, SyntheticSource) else {}


@dataclass(frozen=True)
class NoisyCopy(Checked):
    """Distribution of one value given the value that it copies.

    With probability `change` the copy is one of the n_values - 1 other values, each with equal
    probability; otherwise it is the same value. Raises ValueError if nothing can change.
    """

    n_values: IntAboveOne
    change: OpenUnitInterval

    def apply(self, values: Numbers, uniform: NDArray[np.float64]) -> Numbers:
        """Return noisy copies of values in 0 .. n_values - 1; uniform: one draw in [0, 1) each."""
        # Below `change` the draw also selects one of the other values.
        offset = (uniform / self.change * (self.n_values - 1)).astype(np.int64)
        return np.where(uniform < self.change, (values + 1 + offset) % self.n_values, values)

    def chain(self, uniform: NDArray[np.float64]) -> Numbers:
        """Return items [N, R, ...] in which part r is a copy of part r - 1, and part 0 uniform.

        uniform: one draw in [0, 1) for each value, [N, R, ...].
        """
        parts = [(uniform[:, 0] * self.n_values).astype(np.int64)]
        for part in range(1, uniform.shape[1]):
            parts.append(self.apply(parts[-1], uniform[:, part]))
        return np.stack(parts, axis=1)

    def chain_entropy(self, n_parts: int) -> float:
        """Return the mean entropy of a value of `chain` in nats; n_parts: R."""
        return (math.log(self.n_values) + (n_parts - 1) * self.entropy()) / n_parts

    def entropy(self) -> float:
        """Return the entropy of a value in nats: -(1 - c) ln(1 - c) - c ln(c / (n_values - 1))."""
        one_other = self.change / (self.n_values - 1)
        return -(1 - self.change) * math.log1p(-self.change) - self.change * math.log(one_other)


def uniform_draws(seed: int, split: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return uniform draws in [0, 1) from a generator of (seed, split).

    The first draws do not depend on their number. Python's `random()` gives the same numbers in
    every version, numpy's generators do not.
    """
    generator = random.Random(f"{seed} {split}")
    return np.array([generator.random() for _ in range(math.prod(shape))]).reshape(shape)
