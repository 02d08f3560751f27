"""Examples of a split, which a task encodes, and their batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.language.sources.base import Document
from triptych.text.tokenizer import TextTokenizer
from triptych.training.loading.batches import Items, Ragged, batches_by_length, plan_parts
from triptych.training.loading.loader import FixedBatches, ResumableLoader


class Examples(ABC):
    """Examples of a split as ids."""

    @property
    @abstractmethod
    def lengths(self) -> NDArray[np.int64]:
        """Length of each example in tokens, special ids included, [N]."""

    @abstractmethod
    def batch(self, items: Items, generator: torch.Generator | None) -> Any:
        """Return the examples of these numbers as one batch of tensors.

        generator: of everything that is drawn anew in each epoch; None in a validation, where what
        is drawn depends on the number of the example alone.
        """

    def __len__(self) -> int:
        return len(self.lengths)


def training_batches(examples: Examples, max_tokens: int, *, seed: int) -> ResumableLoader:
    """Return the loader of the training examples, in batches of equal lengths for the most part."""

    def plan(items: range, generator: torch.Generator) -> Ragged:
        order = items.start + torch.randperm(len(items), generator=generator).numpy()
        return _sorted_batches(examples, order, max_tokens, generator)

    return ResumableLoader(
        len(examples),
        plan_parts(len(examples), plan, seed=seed),
        examples.batch,
        seed=seed,
        name="the training split",
    )


def evaluation_batches(
    examples: Examples, max_tokens: int, *, limit: int | None = None
) -> FixedBatches:
    """Return batches of all examples, or of the first ones, without shuffling."""
    order = np.arange(len(examples), dtype=np.int64)[:limit]
    return FixedBatches(_sorted_batches(examples, order, max_tokens, None), examples.batch)


def _sorted_batches(
    examples: Examples,
    order: NDArray[np.int64],
    max_tokens: int,
    generator: torch.Generator | None,
) -> Ragged:
    lengths = examples.lengths[order]
    by_length = np.argsort(lengths, kind="stable")  # equal lengths keep their order
    return batches_by_length(order[by_length], lengths[by_length], max_tokens, generator)


def encode_documents(
    documents: Sequence[Document], tokenizer: TextTokenizer
) -> Iterator[list[list[int]]]:
    """Yield the ids of the sentences of each document, without special ids."""
    encoded = iter(tokenizer.encode_batch([each for document in documents for each in document]))
    for document in documents:
        yield [next(encoded) for _ in document]


def join_sentences(sentences: Sequence[Sequence[int]], most: int) -> Iterator[list[int]]:
    """Yield rows of at most `most` tokens: as many whole sentences as fit, one after the other.

    A longer sentence is cut into rows of its own.
    """
    row: list[int] = []
    for sentence in sentences:
        if row and len(row) + len(sentence) > most:
            yield row
            row = []
        row = [*row, *sentence]
        while len(row) > most:
            yield row[:most]
            row = row[most:]
    if row:
        yield row
