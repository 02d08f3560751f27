"""Examples of a split as rows of tokens: masked rows, windows of documents, rows with labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.language.model import CLS, MASK, N_SPECIALS, SEP
from triptych.domains.language.sources import Document
from triptych.text.batches import Examples
from triptych.text.tokenizer import PAD, TextTokenizer
from triptych.training.loading.batches import Items, Ragged, generator_for
from triptych.types import Checked, ClosedUnitInterval, OpenUnitInterval

VALIDATION_SEED = 15
"""Number that, with that of an example, seeds its masks in a validation."""
NONE_BEFORE = -1
"""Value before the first token of a document."""


def encode_documents(
    documents: Sequence[Document], tokenizer: TextTokenizer
) -> Iterator[list[list[int]]]:
    """Yield the ids of the sentences of each document, without special ids."""
    encoded = iter(tokenizer.encode_batch([each for document in documents for each in document]))
    for document in documents:
        yield [next(encoded) for _ in document]


def join_sentences(sentences: Sequence[Sequence[int]], most: int) -> Iterator[list[int]]:
    """Yield rows of at most `most` tokens: as many sentences as fit; a longer one is cut."""
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


@dataclass(frozen=True)
class MaskRates(Checked):
    """Shares of tokens that are predicted, and what the model reads in their place."""

    predicted: OpenUnitInterval = 0.15
    """Share of the tokens that are predicted, each drawn by itself; never special ids."""
    masked: ClosedUnitInterval = 0.8
    """Share of the predicted tokens that are read as [MASK]."""
    replaced: ClosedUnitInterval = 0.1
    """Share of the predicted tokens that are read as a random token; the others stay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masked + self.replaced > 1:
            raise ValueError(
                f"masked is {self.masked} and replaced is {self.replaced}; expected a sum of at "
                "most 1"
            )

    def apply(
        self, tokens: Tensor, known: range, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the tokens as the model reads them, and which of them are predicted, bool.

        tokens: int64 [...], with special ids, which are never predicted. known: ids of the text
        other than the unknown token, of which a random one is drawn.
        """
        which, kind = torch.rand((2, *tokens.shape), generator=generator)  # 2 x [...]
        predicted = (tokens >= N_SPECIALS) & (which < self.predicted)
        random = torch.randint(known.start, known.stop, tokens.shape, generator=generator)
        read = torch.where(predicted & (kind < self.masked), MASK, tokens)
        swapped = (kind >= self.masked) & (kind < self.masked + self.replaced)
        return torch.where(predicted & swapped, random, read), predicted


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

    def __len__(self) -> int:
        return len(self.first)

    def sizes(self, items: range) -> NDArray[np.int64]:
        first, lengths = self.first[items.start : items.stop], self.rows.lengths
        if self.next_sentence:  # the second [CLS] is left out
            return (lengths[first] + lengths[first + 1] - 1)[:, None]  # [N, 1]
        return lengths[first][:, None]  # [N, 1]

    def batch(self, items: Items, generator: torch.Generator | None) -> MaskedBatch:
        examples = []
        for item in items:
            drawn = generator or generator_for(VALIDATION_SEED, int(item))
            first, second, is_next = self._segments(int(item), drawn)
            row = torch.from_numpy(np.concatenate([first, second]).astype(np.int64))  # [L]
            segment = (torch.arange(len(row)) >= len(first)).long()  # [L]
            examples.append((row, segment, *self.rates.apply(row, self.known, drawn), is_next))
        rows, segments, read, predicted, follows = zip(*examples, strict=True)
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


def _padded(rows: Sequence[Tensor], fill: int = 0) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([*rows], batch_first=True, padding_value=fill)


class NextTokenBatch(NamedTuple):
    """Windows of documents, padded at the end."""

    values: Tensor
    """Ids to predict, int64 [B, L]; a document ends with [SEP]."""
    previous: Tensor
    """Id before each window, int64 [B]; -1 at the beginning of a document."""


class Windows(Examples):
    """Windows of max_length tokens; each token of the documents, [SEP] too, is in exactly one."""

    def __init__(self, documents: Ragged, max_length: int, vocabulary: int) -> None:
        self.documents = documents
        self.vocabulary = vocabulary
        starts = [np.arange(a, b, max_length) for a, b in pairwise(documents.offsets)]
        offsets = np.append(np.concatenate(starts), documents.offsets[-1])
        self.windows = Ragged(documents.values, offsets)
        before = documents.values[offsets[:-1] - 1]
        begins = np.isin(offsets[:-1], documents.offsets[:-1])
        self.previous = np.where(begins, NONE_BEFORE, before).astype(np.int64)

    def __len__(self) -> int:
        return len(self.windows)

    def sizes(self, items: range) -> NDArray[np.int64]:
        return self.windows.part(items).lengths[:, None]  # [N, 1]

    def batch(self, items: Items, generator: torch.Generator | None) -> NextTokenBatch:
        values = torch.from_numpy(self.windows.padded(items, PAD))  # [B, L]
        return NextTokenBatch(values, torch.from_numpy(self.previous[np.asarray(items)]))

    def pairs(self, limit: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the token before each one, [CLS] at the start of a document, and these, [N]."""
        targets = self.windows.values[: self.windows.offsets[: limit and limit + 1][-1]]
        contexts = np.concatenate([[CLS], targets[:-1]]).astype(np.int64)
        begins = self.documents.offsets[:-1]
        contexts[begins[begins < len(contexts)]] = CLS
        return contexts, targets.astype(np.int64)


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
    """Examples of R rows each; rows: those of all examples in order. labels: [N]."""

    def __init__(self, rows: Ragged, labels: NDArray[np.int64], n_rows: int) -> None:
        self.rows = rows
        self.labels = labels
        self.n_rows = n_rows

    def __len__(self) -> int:
        return len(self.labels)

    def sizes(self, items: range) -> NDArray[np.int64]:
        """Return the tokens of each example, all rows as long as its longest one, [N, 1]."""
        of_rows = self.rows.lengths.reshape(-1, self.n_rows)[items.start : items.stop]  # [N, R]
        longest: NDArray[np.int64] = of_rows.max(1, keepdims=True) * self.n_rows  # [N, 1]
        return longest

    def batch(self, items: Items, generator: torch.Generator | None) -> LabelledBatch:
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
