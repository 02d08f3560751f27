"""The next token: a language model that reads from left to right."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.transformer import take_auxiliary_loss
from triptych.decoding.sampling import SampleRequest
from triptych.domains.language.count_models import CountModels
from triptych.domains.language.data import Examples, encode_documents
from triptych.domains.language.domain import LanguageScoreRequest
from triptych.domains.language.model import ModelConfig
from triptych.domains.language.sources.base import Source
from triptych.domains.language.tasks.base import FurtherScores, Task, text_source, training_lines
from triptych.domains.language.text_generation import continue_text
from triptych.domains.language.vocabulary import CLS, SEP, Vocabulary
from triptych.text.tokenizer import PAD
from triptych.training.engine.evaluate import in_double
from triptych.training.loading.batches import Items, Ragged
from triptych.types import Progress

SHOWN = 5
"""Texts that are sampled after a validation."""
NONE_BEFORE = -1
"""Value before the first token of a document."""


class NextTokenBatch(NamedTuple):
    """Windows of documents, padded at the end."""

    values: Tensor
    """Ids to predict, int64 [B, L]; a document ends with [SEP]."""
    previous: Tensor
    """Id before each window, int64 [B]; -1 at the beginning of a document."""


class Windows(Examples):
    """Windows of documents; every token of a document is in exactly one.

    documents: tokens of each document with [SEP]. max_length: of a window.
    """

    def __init__(self, documents: Ragged, max_length: int, vocabulary: int) -> None:
        self.documents = documents
        self.vocabulary = vocabulary
        begins = documents.offsets[:-1]
        starts = [np.arange(a, b, max_length) for a, b in pairwise(documents.offsets)]
        offsets = np.append(np.concatenate(starts), documents.offsets[-1])
        self.windows = Ragged(documents.values, offsets)
        before = documents.values[offsets[:-1] - 1]
        self.previous = np.where(np.isin(offsets[:-1], begins), NONE_BEFORE, before).astype(
            np.int64
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.windows.lengths

    def batch(self, items: Items, generator: torch.Generator | None) -> NextTokenBatch:
        """Return the windows of these numbers; nothing is drawn."""
        values = torch.from_numpy(self.windows.padded(items, PAD))  # [B, L]
        return NextTokenBatch(values, torch.from_numpy(self.previous[np.asarray(items)]))

    def pairs(self, limit: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the token before each token of the first windows, and the token itself, [N].

        Before the first token of a document it is [CLS].
        """
        targets = self.windows.values[: self.windows.offsets[: limit and limit + 1][-1]]
        contexts = np.concatenate([[CLS], targets[:-1]]).astype(np.int64)
        begins = self.documents.offsets[:-1]
        contexts[begins[begins < len(contexts)]] = CLS
        return contexts, targets.astype(np.int64)


@dataclass(frozen=True)
class NextToken(Task):
    """Predict each token from the tokens before it."""

    monitor: ClassVar[str] = "nats_per_token"

    def texts(self, source: Source) -> Iterable[str]:
        return training_lines(source, self)

    def build_model(
        self, model: ModelConfig, vocabulary: Vocabulary, max_length: int
    ) -> DecoderOnly:
        return model.build_decoder(len(vocabulary), max_length)

    def encode(
        self, source: Source, split: str, vocabulary: Vocabulary, max_length: int
    ) -> Windows:
        documents = text_source(source, self).documents(split)
        encoded = encode_documents(documents, vocabulary.tokenizer)
        rows = ([token for sentence in document for token in sentence] for document in encoded)
        return Windows(
            Ragged.of(([*row, SEP] for row in rows), np.int32), max_length, len(vocabulary)
        )

    def training_loss(self, model: DecoderOnly, batch: NextTokenBatch) -> tuple[Tensor, Tensor]:
        real = batch.values != PAD  # [B, L]
        count = real.sum()
        return (_nll(model, batch).sum() + take_auxiliary_loss(model, real)) / count, count

    def score(self, model: DecoderOnly, batch: NextTokenBatch) -> dict[str, Tensor]:
        return {
            "nats": in_double(_nll(model, batch)).sum(),
            "tokens": in_double((batch.values != PAD).sum()),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        nats = totals["nats"] / totals["tokens"]
        return {"nats_per_token": nats, "perplexity": math.exp(min(nats, 700.0))}

    def table(
        self, model: DecoderOnly, examples: Windows, vocabulary: Vocabulary, seed: int
    ) -> list[dict[str, str]]:
        """Return sampled texts."""
        length = int(examples.lengths.max())
        rows = continue_text(model, [], SampleRequest(SHOWN, length, seed=seed), vocabulary)
        return [{"text": text} for text in vocabulary.tokenizer.decode_batch(rows)]

    def further_scores(
        self,
        model: DecoderOnly,
        examples: Windows,
        training: Windows | None,
        request: LanguageScoreRequest,
        *,
        max_tokens: int,
        progress: Progress | None,
    ) -> FurtherScores:
        if training is None:
            return FurtherScores()
        nats = CountModels(*training.pairs(), training.vocabulary).nats(
            *examples.pairs(request.limit)
        )
        perplexity = {name: math.exp(value) for name, value in nats.items()}
        return FurtherScores(simple_models={"nats_per_token": nats, "perplexity": perplexity})


def _nll(model: DecoderOnly, batch: NextTokenBatch) -> Tensor:
    """Return the nats of each token, 0 for padding: [B, L]."""
    # Padding follows the text, where no causal model looks.
    return model.nll(batch.values, batch.previous).masked_fill(batch.values == PAD, 0.0)
