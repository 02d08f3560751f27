"""Batches of a number of tokens, of items that are sorted by length."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.training.loading.ragged import Ragged


def batches_by_length(
    items: NDArray[np.int64],
    lengths: NDArray[np.int64],
    max_tokens: int,
    generator: torch.Generator | None,
) -> Ragged:
    """Return batches of neighbouring items; each item is in exactly one batch.

    items, lengths [N]: item numbers and their lengths in tokens, sorted by length. max_tokens:
    maximum size of a batch in tokens, padding included; a longer item is a batch of its own.
    generator: shuffles the order of the batches; None keeps it.
    """
    batches = Ragged(items, np.array([*_starts(lengths, max_tokens), len(items)]))
    if generator is None:
        return batches
    shuffled = torch.randperm(len(batches), generator=generator).tolist()
    return Ragged.of(batches[index] for index in shuffled)


def _starts(lengths: NDArray[np.int64], max_tokens: int) -> list[int]:
    """Return the index at which each batch begins; lengths rise, so that the last item's counts."""
    starts: list[int] = []
    start = 0
    while start < len(lengths):
        starts.append(start)
        most = max(1, max_tokens // int(lengths[start]))
        padded = lengths[start : start + most] * np.arange(1, most + 1)[: len(lengths) - start]
        start += max(1, int(np.searchsorted(padded, max_tokens, side="right")))
    return starts
