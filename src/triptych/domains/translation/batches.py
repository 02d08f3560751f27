"""Encoded sentence pairs and padded batches of at most `max_tokens` tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.translation.sources import Pair
from triptych.domains.translation.tokenizer import END, PAD, START, Tokenizers
from triptych.training.data import FixedBatches, fixed_batches


class RaggedArray:
    """Rows of ids of different lengths in one flat int32 array."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.lengths = np.array([len(row) for row in rows], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self._ids = np.fromiter(
            (piece for row in rows for piece in row), dtype=np.int32, count=int(self._starts[-1])
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> list[int]:
        ids: list[int] = self._ids[self._starts[index] : self._starts[index + 1]].tolist()
        return ids


class Batch(NamedTuple):
    """Sentence pairs as ids, padded at the end of each row."""

    source: Tensor
    """Source ids, int64 [B, S]; each row ends with END."""
    target: Tensor
    """Target ids, int64 [B, T + 1]; each row begins with START and ends with END."""

    @property
    def source_padding(self) -> Tensor:
        """True on padding, bool [B, S]."""
        return self.source == PAD

    @property
    def target_input(self) -> Tensor:
        """Decoder input, [B, T]: all columns but the last."""
        return self.target[:, :-1]  # [B, T]

    @property
    def expected(self) -> Tensor:
        """Targets to predict, [B, T]: all columns but START."""
        return self.target[:, 1:]  # [B, T]


class EncodedPairs:
    """Sentence pairs as ids, sources with END, targets with START and END."""

    def __init__(self, pairs: Sequence[Pair], tokenizers: Tokenizers) -> None:
        sources = tokenizers.source.encode_batch([source for source, _ in pairs])
        targets = tokenizers.target.encode_batch([target for _, target in pairs])
        self.sources = RaggedArray([[*row, END] for row in sources])
        self.targets = RaggedArray([[START, *row, END] for row in targets])

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def source_lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each source, END included, int64 [N]."""
        return self.sources.lengths

    @property
    def target_lengths(self) -> NDArray[np.int64]:
        """Number of tokens to predict for each target, END included, int64 [N]."""
        return self.targets.lengths - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of the longer side of each pair, END included, int64 [N]."""
        return np.maximum(self.source_lengths, self.target_lengths)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the pairs of these indices as one batch."""
        return Batch(
            pad_rows([self.sources[index] for index in indices]),
            pad_rows([self.targets[index] for index in indices]),
        )


def pad_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of ids as one int64 [B, longest], with PAD after the end of each row."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])  # [B, longest]


def plan_batches(
    pairs: EncodedPairs,
    chosen: Sequence[int],
    *,
    max_tokens: int,
    generator: torch.Generator | None,
) -> list[list[int]]:
    """Group the chosen pairs into batches with little padding on both sides.

    Pairs are sorted by the length of their longer side, which fills the batch, and within one
    length by the difference of both sides, in alternating direction, so that neighbours differ
    little in either. Sorting by target and then source, as is usual, pads about twice as much.

    max_tokens: maximum size of a batch in tokens, padding included, on either side; a longer pair
    is a batch of its own. generator: shuffles pairs of equal lengths and the order of the batches;
    None keeps the sorted order. Each chosen pair is in exactly one batch.
    """
    order = np.array(chosen, dtype=np.int64)  # [N]
    if generator is not None:
        order = order[torch.randperm(len(order), generator=generator).numpy()]
    lengths = pairs.lengths[order]  # [N]
    difference = pairs.source_lengths[order] - pairs.target_lengths[order]  # [N]
    alternating = np.where(lengths % 2 == 0, difference, -difference)  # [N]
    # lexsort is stable: pairs of equal lengths keep the shuffled order.
    by_length = np.lexsort((alternating, lengths))  # [N]
    batches: list[list[int]] = []
    current: list[int] = []
    longest = 0
    rows = zip(order[by_length].tolist(), lengths[by_length].tolist(), strict=True)
    for index, length in rows:
        longest = max(longest, length)
        if current and (len(current) + 1) * longest > max_tokens:
            batches.append(current)
            current, longest = [], length
        current.append(index)
    if current:
        batches.append(current)
    if generator is not None:
        shuffled = torch.randperm(len(batches), generator=generator).tolist()
        batches = [batches[index] for index in shuffled]
    return batches


def evaluation_batches(pairs: EncodedPairs, max_tokens: int) -> FixedBatches:
    """Return batches of all pairs of a split, whatever their lengths, without shuffling."""
    return fixed_batches(
        len(pairs),
        lambda indices, _: pairs.batch(indices),
        batches=plan_batches(pairs, range(len(pairs)), max_tokens=max_tokens, generator=None),
    )


def short_enough(pairs: EncodedPairs, max_length: int) -> list[int]:
    """Return the indices of the pairs with at most max_length tokens on either side."""
    indices: list[int] = np.flatnonzero(pairs.lengths <= max_length).tolist()
    return indices
