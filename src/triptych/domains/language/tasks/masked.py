"""Masked tokens and, if wanted, the next sentence: the pretraining of BERT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.heads import cross_entropy
from triptych.core.models.encoder_only import MaskedTokenModel
from triptych.decoding.sampling import SampleRequest, sample_value
from triptych.domains.language.model import (
    CLS,
    MASK,
    N_SPECIALS,
    SEP,
    SPECIALS,
    ModelConfig,
    Task,
    Vocabulary,
    segments,
)
from triptych.domains.language.sources import Source
from triptych.errors import UserError
from triptych.text.batches import Examples
from triptych.text.tokenizer import PAD, TextTokenizer
from triptych.training.engine.devices import device_of, scoring, to_device
from triptych.training.engine.evaluate import in_double
from triptych.training.engine.objective import Predictions
from triptych.training.loading.batches import Items, Ragged, generator_for
from triptych.types import ClosedUnitInterval, OpenUnitInterval

Ids = NDArray[np.int64]
SHOWN = 8
"""Examples whose predictions are shown after a validation."""
VALIDATION_SEED = 15
"""Number that, with that of an example, seeds its masks in a validation."""


class MaskedBatch(NamedTuple):
    """Rows with masked tokens, padded at the end."""

    tokens: Tensor
    """Ids as the model reads them, int64 [B, L]: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
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

    def __init__(self, rows: Ragged, document: Ids, task: MaskedTokens, known: range) -> None:
        self.rows = rows
        self.document = document
        self.task = task
        self.known = known
        followed = document[:-1] == document[1:]
        self.first = np.flatnonzero(followed) if task.next_sentence else np.arange(len(rows))
        """Row A of each example."""

    def __len__(self) -> int:
        return len(self.first)

    def sizes(self, items: range) -> Ids:
        first, lengths = self.first[items.start : items.stop], self.rows.lengths
        if self.task.next_sentence:  # the second [CLS] is left out
            return (lengths[first] + lengths[first + 1] - 1)[:, None]  # [N, 1]
        return lengths[first][:, None]  # [N, 1]

    def batch(self, items: Items, generator: torch.Generator | None) -> MaskedBatch:
        examples = []
        for item in items:
            drawn = generator or generator_for(VALIDATION_SEED, int(item))
            first, second, is_next = self._segments(int(item), drawn)
            row = torch.from_numpy(np.concatenate([first, second]).astype(np.int64))  # [L]
            examples.append((row, *self.task.apply(row, self.known, drawn), is_next))
        rows, read, predicted, follows = zip(*examples, strict=True)
        where = _padded(predicted).flatten().nonzero().squeeze(1)  # [M]
        expected = _padded(rows).flatten()[where]  # [M]
        return MaskedBatch(_padded(read, PAD), where, expected, torch.tensor(follows))

    def _segments(self, item: int, generator: torch.Generator) -> tuple[Ids, Ids, int]:
        """Return A, B and whether B follows A; B is empty without the next-sentence task.

        Half of the time B is the next row of the document. Otherwise it is a row of another
        document, cut to the length of the next row, so that its length tells little.
        """
        first = int(self.first[item])
        if not self.task.next_sentence:
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


@dataclass(frozen=True)
class MaskedTokens(Task):
    """Predict masked tokens from the tokens on both sides (Devlin et al. 2018, section 3.1)."""

    predicted: OpenUnitInterval = 0.15
    """Share of the tokens that are predicted, each drawn by itself; never special ids."""
    masked: ClosedUnitInterval = 0.8
    """Share of the predicted tokens that are read as [MASK]."""
    replaced: ClosedUnitInterval = 0.1
    """Share of the predicted tokens that are read as a random token; the others stay."""
    next_sentence: bool = False
    """Also predict whether the second of two segments follows the first one in its document."""

    monitor: ClassVar[str] = "nats_per_masked_token"

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

    def build_model(
        self, model: ModelConfig, vocabulary: Vocabulary, max_length: int
    ) -> MaskedTokenModel:
        return MaskedTokenModel(
            model.transformer,
            vocabulary=len(vocabulary),
            max_length=max_length,
            next_sentence=self.next_sentence,
        )

    def encode(
        self, source: Source, split: str, vocabulary: Vocabulary, max_length: int
    ) -> MaskedExamples:
        documents = source.items(split)
        most = (max_length - 3) // 2 if self.next_sentence else max_length - 2
        rows, document = [], []
        for number, sentences in enumerate(vocabulary.encode_documents(documents)):
            for row in join_sentences(sentences, most):
                rows.append([CLS, *row, SEP])
                document.append(number)
        of_rows = np.array(document, dtype=np.int64)
        examples = MaskedExamples(Ragged.of(rows, np.int32), of_rows, self, vocabulary.known)
        if self.next_sentence and (not len(examples) or len(set(document)) < 2):
            raise UserError(
                f"next_sentence is true, but the {split} split has no document of two segments of "
                f"{most} tokens, or one document alone; expected several longer documents"
            )
        return examples

    def predictions(self, model: MaskedTokenModel, batch: MaskedBatch) -> Predictions:
        features = model.encoder(batch.tokens, segments(batch.tokens), batch.padding)  # [B, L, D]
        further: Tensor | float = 0.0
        if self.next_sentence:
            further = cross_entropy(model.order(features), batch.follows).mean()
        chosen = model.transform(features.flatten(0, 1)[batch.where])  # [M, D]
        return Predictions(chosen, model.head, batch.expected, further=further)

    def score(self, model: MaskedTokenModel, batch: MaskedBatch) -> dict[str, Tensor]:
        features = model.encoder(batch.tokens, segments(batch.tokens), batch.padding)  # [B, L, D]
        logits = model.logits(features.flatten(0, 1)[batch.where])  # [M, V]
        sums = {
            "nats": in_double(model.head.nll(logits, batch.expected)).sum(),
            "correct": in_double(logits.argmax(-1) == batch.expected).sum(),
            "tokens": torch.tensor(float(len(batch.where))),
        }
        if self.next_sentence:
            follows = model.order(features).argmax(-1)  # [B]
            sums["ordered"] = in_double(follows == batch.follows).sum()
            sums["pairs"] = torch.tensor(float(len(batch.follows)))
        return sums

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        tokens = max(totals["tokens"], 1.0)
        values = {
            "nats_per_masked_token": totals["nats"] / tokens,
            "masked_accuracy": totals["correct"] / tokens,
        }
        if self.next_sentence:
            values["next_sentence_accuracy"] = totals["ordered"] / totals["pairs"]
        return values

    def table(
        self, model: MaskedTokenModel, examples: MaskedExamples, vocabulary: Vocabulary, seed: int
    ) -> list[dict[str, str]]:
        symbols, device, rows = vocabulary.tokenizer.symbols, device_of(model), []
        for item in range(min(SHOWN, len(examples))):
            batch = to_device(examples.batch([item], None), device)
            features = model.encoder(batch.tokens, segments(batch.tokens))[0]  # [L, D]
            best = model.logits(features[batch.where]).argmax(-1)  # [M]
            columns = {"read": batch.tokens[0], "predicted": best, "right": batch.expected}
            rows.append(
                {name: " ".join(symbols[t] for t in ids.tolist()) for name, ids in columns.items()}
            )
        return rows

    def write(
        self,
        model: MaskedTokenModel,
        vocabulary: Vocabulary,
        prompt: str,
        request: SampleRequest,
        most: int,
    ) -> list[list[int]]:
        """Return copies of the prompt with a token in place of each "[MASK]"."""
        tokens = encode_masked(vocabulary.tokenizer, prompt)
        if MASK not in tokens or len(tokens) > most:
            raise UserError(
                f"the prompt has {tokens.count(MASK)} [MASK] and {len(tokens)} tokens; a "
                f"masked-token model fills masks: expected one or more, and at most {most} "
                "tokens (data.max_length)"
            )
        return fill_masks(model, tokens, request, vocabulary)


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


def encode_masked(tokenizer: TextTokenizer, text: str) -> list[int]:
    """Return [CLS], the ids of a text in which "[MASK]" stands for a token, and [SEP]."""
    parts = tokenizer.encode_batch(text.split(SPECIALS[MASK]))
    tokens = [CLS, *parts[0]]
    for part in parts[1:]:
        tokens += [MASK, *part]
    return [*tokens, SEP]


def fill_masks(
    model: MaskedTokenModel, tokens: Sequence[int], request: SampleRequest, vocabulary: Vocabulary
) -> list[list[int]]:
    """Return `count` copies of a text with a sampled token in place of each [MASK].

    From left to right; each depends on all others. tokens: of `encode_masked`.
    """
    device = device_of(model)
    generator = request.generator_on(device)
    rows = torch.tensor(tokens, device=device).repeat(request.count, 1)  # [B, L]
    forbidden = torch.zeros(model.head.n_parameters, dtype=torch.bool, device=device)
    forbidden[: vocabulary.known.start] = True
    with scoring(model):
        for position in (rows[0] == MASK).nonzero().squeeze(1).tolist():
            logits: Tensor = model.logits(model.encoder(rows)[:, position])  # [B, V]
            logits = logits.masked_fill(forbidden, -torch.inf)
            rows[:, position] = sample_value(model.head, logits, request.sampling, generator)
    filled: list[list[int]] = rows.tolist()
    return filled
