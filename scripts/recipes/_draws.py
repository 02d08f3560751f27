"""Draws of recipes whose data have a known entropy."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych.types import Checked, IntAboveOne, OpenUnitInterval

Numbers = NDArray[np.int64]


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
        """Return items in which part r copies part r - 1; uniform: draws in [0, 1) [N, R, ...]."""
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
