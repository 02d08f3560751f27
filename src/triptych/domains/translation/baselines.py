"""Models that know no source: the figures that stand beside a model's nats per target token."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from triptych.domains.translation.data import EncodedPairs

ADDED = 0.5
"""What every count begins with (Krichevsky and Trofimov's estimate), as for music."""


def ladder(n_types: int, train: EncodedPairs, held_out: EncodedPairs) -> dict[str, float]:
    """Nats per target token, ends included, of a uniform model and of one that counts tokens."""
    counts = np.bincount(_expected(train), minlength=n_types) + ADDED
    nats = -np.log(counts / counts.sum())
    return {
        "uniform": math.log(n_types),
        "frequency of the token": float(nats[_expected(held_out)].mean()),
    }


def _expected(pairs: EncodedPairs) -> NDArray[np.int64]:
    """Every token that a decoder has to say, int64 [N]: all but the starts."""
    rows = [pairs.targets[index][1:] for index in range(len(pairs))]
    return np.array([token for row in rows for token in row], dtype=np.int64)
