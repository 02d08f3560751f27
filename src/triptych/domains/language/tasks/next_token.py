"""The next token: a language model that reads from left to right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.constraints import Forbidden
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest
from triptych.domains.language.model import (
    N_SPECIALS,
    SEP,
    ModelConfig,
    Task,
    Vocabulary,
)
from triptych.domains.language.sources import Source
from triptych.errors import UserError
from triptych.text.batches import Examples
from triptych.text.tokenizer import PAD
from triptych.training.engine.devices import device_of
from triptych.training.engine.evaluate import in_double
from triptych.training.engine.objective import Predictions
from triptych.training.loading.batches import Items, Ragged

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


@dataclass(frozen=True)
class NextToken(Task):
    """Predict each token from the tokens before it."""

    monitor: ClassVar[str] = "nats_per_token"

    def build_model(
        self, model: ModelConfig, vocabulary: Vocabulary, max_length: int
    ) -> DecoderOnly:
        return model.build_decoder(len(vocabulary), max_length)

    def encode(
        self, source: Source, split: str, vocabulary: Vocabulary, max_length: int
    ) -> Windows:
        encoded = vocabulary.encode_documents(source.items(split))
        rows = ([*chain.from_iterable(document), SEP] for document in encoded)
        return Windows(Ragged.of(rows, np.int32), max_length, len(vocabulary))

    def predictions(self, model: DecoderOnly, batch: NextTokenBatch) -> Predictions:
        features = model.features(batch.values, batch.previous)  # [B, L, D]
        return Predictions(features, model.head, batch.values, batch.values != PAD)

    def score(self, model: DecoderOnly, batch: NextTokenBatch) -> dict[str, Tensor]:
        # [B, L]; padding follows the text, where no causal model looks.
        nats = model.nll(batch.values, batch.previous).masked_fill(batch.values == PAD, 0.0)
        tokens = in_double((batch.values != PAD).sum())
        return {"nats": in_double(nats).sum(), "tokens": tokens}

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        nats = totals["nats"] / totals["tokens"]
        return {"nats_per_token": nats, "perplexity": math.exp(min(nats, 700.0))}

    def table(
        self, model: DecoderOnly, examples: Windows, vocabulary: Vocabulary, seed: int
    ) -> list[dict[str, str]]:
        length = int(examples.lengths.max())
        rows = continue_text(model, [], SampleRequest(SHOWN, length, seed=seed), vocabulary)
        return [{"text": text} for text in vocabulary.tokenizer.decode_batch(rows)]

    def write(
        self,
        model: DecoderOnly,
        vocabulary: Vocabulary,
        prompt: str,
        request: SampleRequest,
        most: int,
    ) -> list[list[int]]:
        tokens, length = vocabulary.tokenizer.encode(prompt), request.length
        if not len(tokens) < length <= most:
            raise UserError(
                f"the prompt has {len(tokens)} tokens and length is {length}; expected a prompt "
                f"shorter than length, and a length of at most {most} (data.max_length)"
            )
        return continue_text(model, tokens, request, vocabulary)


def continue_text(
    model: DecoderOnly, tokens: Sequence[int], request: SampleRequest, vocabulary: Vocabulary
) -> list[list[int]]:
    """Return texts of at most `length` tokens that begin with these, without special ids."""
    device = device_of(model)
    prefix = torch.tensor(tokens, dtype=torch.int64, device=device).expand(request.count, -1)
    never = [token for token in range(vocabulary.known.start) if token != SEP]
    constraint = Forbidden(never, len(vocabulary), device)
    rows = generate(model, replace(request, prefix=prefix, end=SEP, constraint=constraint))
    return [[token for token in row if token >= N_SPECIALS] for row in rows.tolist()]
