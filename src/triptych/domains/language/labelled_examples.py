"""Examples with labels as rows of tokens, and their batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.language.data import Examples
from triptych.domains.language.vocabulary import CLS, SEP
from triptych.text.tokenizer import PAD
from triptych.training.loading.batches import Items, Ragged


class LabelledBatch(NamedTuple):
    """Examples of R rows each, padded at the end."""

    tokens: Tensor
    """Ids, int64 [B, R, L]: [CLS] A [SEP] or [CLS] A [SEP] B [SEP]; without [CLS] for a decoder."""
    labels: Tensor
    """Number of the class, or of the right row, int64 [B]."""

    @property
    def padding(self) -> Tensor:
        """True on padding, bool [B, R, L]."""
        return self.tokens == PAD

    @property
    def segments(self) -> Tensor:
        """Segment of each id, int64 [B, R, L]: 0 to the first [SEP], then 1."""
        ends = self.tokens == SEP  # [B, R, L]
        return (ends.cumsum(-1) - ends.long()).clamp(max=1)  # [B, R, L]


class LabelledExamples(Examples):
    """Examples of R rows each.

    rows: the rows of all examples one after the other. labels: [N].
    """

    def __init__(self, rows: Ragged, labels: NDArray[np.int64], n_rows: int) -> None:
        self.rows = rows
        self.labels = labels
        self.n_rows = n_rows

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each example, all rows as long as its longest one, [N]."""
        of_rows = self.rows.lengths.reshape(-1, self.n_rows)  # [N, R]
        longest: NDArray[np.int64] = of_rows.max(1) * self.n_rows
        return longest

    def batch(self, items: Items, generator: torch.Generator | None) -> LabelledBatch:
        """Return the examples of these numbers; nothing is drawn."""
        chosen = np.asarray(items)
        rows = (chosen[:, None] * self.n_rows + np.arange(self.n_rows)).reshape(-1)  # [B x R]
        tokens = torch.from_numpy(self.rows.padded(rows, PAD))  # [B x R, L]
        return LabelledBatch(
            tokens.unflatten(0, (-1, self.n_rows)), torch.from_numpy(self.labels[chosen])
        )


def join_texts(texts: Sequence[Sequence[int]], most: int, *, with_cls: bool) -> list[int]:
    """Return [CLS] A [SEP], or [CLS] A [SEP] B [SEP], of at most `most` tokens.

    The longer text loses its last tokens first, as in the published code of BERT. texts: one or
    two. with_cls: whether the row begins with [CLS].
    """
    room = most - 1 - len(texts)
    lengths = [len(text) for text in texts]
    while sum(lengths) > room:
        lengths[int(np.argmax(lengths))] -= 1
    row = [CLS] if with_cls else []
    for text, length in zip(texts, lengths, strict=True):
        row += [*text[:length], SEP]
    return row
