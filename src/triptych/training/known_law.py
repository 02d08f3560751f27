"""Sources whose law is known: the figure that no model can beat, beside the figure that it reaches.

Such a source draws its data from a law that is written down, so that the likelihood of what it drew
is known exactly. A model trained on it should come close and can never be better, but by luck
within the sampling error of the split: whoever is better scores something that it was shown.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class KnownLaw(ABC):
    """A source of data that knows how likely everything is that it hands out."""

    @abstractmethod
    def entropy(self) -> float:
        """The expected score of the law itself, in the unit of `evaluate`: no model is better."""

    @abstractmethod
    def nll(self, split: str, limit: int | None = None) -> float:
        """The negative log-likelihood of a split under the law, summed over all of it, in nats.

        limit: of the first so many items. It differs from the entropy by the luck of this draw, so
        it is what a model's score on the same split is to be compared with.
        """


def beside(
    source: object, split: str, limit: int | None, *, nats_per_unit: float
) -> dict[str, Any]:
    """What stands in the details of an evaluation for a source of known law; empty for any other.

    nats_per_unit: divides the sum of nats, so that the law's figure has the unit of the model's.
    """
    if not isinstance(source, KnownLaw):
        return {}
    here = source.nll(split, limit) / nats_per_unit
    return {"true_law": {"entropy": source.entropy(), "on_what_was_scored": here}}


@dataclass(frozen=True)
class NoisyCopy:
    """A value is copied, or becomes any of the others: the law of one step.

    With probability `change` the value is replaced by one of the n_values - 1 others, each as
    likely; else it stays. Raises ValueError where nothing could change.
    """

    n_values: int
    change: float

    def __post_init__(self) -> None:
        if self.n_values < 2:
            raise ValueError(f"a copy needs at least 2 values to choose from, got {self.n_values}.")
        if not 0 < self.change < 1:
            raise ValueError(
                f"change is {self.change}; expected a probability above 0 and below 1."
            )

    def apply(self, values: Numbers, chances: NDArray[np.float64]) -> Numbers:
        """Copy values 0 .. n_values - 1 with mistakes; chances: from 0 to 1, one for each value."""
        # Below `change` the same number also says which of the others it is.
        which = (chances / self.change * (self.n_values - 1)).astype(np.int64)
        return np.where(chances < self.change, (values + 1 + which) % self.n_values, values)

    def nll(self, copied: float, changed: float) -> float:
        """Nats of so many values that were copied and so many that were changed."""
        one_other = self.change / (self.n_values - 1)
        return -(copied * math.log1p(-self.change) + changed * math.log(one_other))

    def entropy(self) -> float:
        """Nats of a value, expected: -(1 - c) ln(1 - c) - c ln(c / (n_values - 1))."""
        return self.nll(1 - self.change, self.change)


def chances(seed: int, split: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Numbers from 0 to below 1, all as likely; each split draws from a generator of its own.

    The first items are the same however many are drawn. Python promises `random()` to be the same
    in every version, which numpy's generators do not.
    """
    draw = random.Random(f"{seed} {split}")
    return np.array([draw.random() for _ in range(math.prod(shape))]).reshape(shape)
