"""Examples with masked tokens, and with a second segment for the next-sentence task."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.language.data import Examples
from triptych.domains.language.masking import MaskRates
from triptych.domains.language.vocabulary import SEP
from triptych.text.tokenizer import PAD
from triptych.training.loading.batches import Items, Ragged, generator_for

VALIDATION_SEED = 15
"""Number that, with that of an example, seeds its masks in a validation."""


class MaskedBatch(NamedTuple):
    """Rows with masked tokens, padded at the end."""

    tokens: Tensor
    """Ids as the model reads them, int64 [B, L]: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
    segments: Tensor
    """Segment of each id, int64 [B, L]: 0 to the first [SEP], then 1."""
    where: Tensor
    """Positions of the predicted tokens in the batch as one row of B x L, int64 [M]."""
    expected: Tensor
    """The predicted tokens, int64 [M]."""
    follows: Tensor
    """Whether B follows A in its document, int64 [B]; 0 without the next-sentence task."""

    @property
    def padding(self) -> Tensor:
        """True on padding, bool [B, L]."""
        return self.tokens == PAD


class MaskedExamples(Examples):
    """Rows of consecutive sentences; with the next-sentence task, pairs of such rows.

    rows: [CLS] A [SEP] of each row. document: number of the document of each row, [N]. known: ids
    of the text that may stand in place of a token.
    """

    def __init__(
        self,
        rows: Ragged,
        document: NDArray[np.int64],
        rates: MaskRates,
        known: range,
        *,
        next_sentence: bool,
    ) -> None:
        self.rows = rows
        self.document = document
        self.rates = rates
        self.known = known
        self.next_sentence = next_sentence
        followed = document[:-1] == document[1:]
        self.first = np.flatnonzero(followed) if next_sentence else np.arange(len(rows))
        """Row A of each example."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        lengths = self.rows.lengths
        if self.next_sentence:  # the second [CLS] is left out
            return lengths[self.first] + lengths[self.first + 1] - 1
        return lengths

    def batch(self, items: Items, generator: torch.Generator | None) -> MaskedBatch:
        """Return the examples with masks, and second segments, from the generator."""
        rows, segments, read, predicted, follows = [], [], [], [], []
        for item in items:
            drawn = generator or generator_for(VALIDATION_SEED, int(item))
            first, second, is_next = self._segments(int(item), drawn)
            row = torch.from_numpy(np.concatenate([first, second]).astype(np.int64))  # [L]
            changed, chosen = self.rates.apply(row, self.known, drawn)
            rows.append(row)
            segments.append((torch.arange(len(row)) >= len(first)).long())
            read.append(changed)
            predicted.append(chosen)
            follows.append(is_next)
        where = _padded(predicted).flatten().nonzero().squeeze(1)  # [M]
        expected = _padded(rows).flatten()[where]  # [M]
        tokens = _padded(read, PAD)  # [B, L]
        return MaskedBatch(tokens, _padded(segments), where, expected, torch.tensor(follows))

    def _segments(
        self, item: int, generator: torch.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return A, B and whether B follows A; B is empty without the next-sentence task.

        Half of the time B is the next row of the document. Otherwise it is a row of another
        document, cut to the length of the next row, so that its length tells little.
        """
        first = int(self.first[item])
        if not self.next_sentence:
            return self.rows[first], self.rows[first][:0], 0
        following = self.rows[first + 1][1:]  # without [CLS]
        if float(torch.rand((), generator=generator)) < 0.5:
            return self.rows[first], following, 1
        # The rows of a document are consecutive: draw among the others.
        begin, end = np.searchsorted(self.document, self.document[first] + np.array([0, 1]))
        other = int(torch.randint(len(self.rows) - int(end - begin), (), generator=generator))
        row = self.rows[other if other < begin else other + int(end - begin)][1:-1]
        return self.rows[first], np.append(row[: len(following) - 1], SEP), 0


def _padded(rows: list[Tensor], fill: int = 0) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)
