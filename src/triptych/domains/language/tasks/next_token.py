"""The next token: a language model that reads from left to right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.constraints import Forbidden
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest
from triptych.domains.language.data import NextTokenBatch, Windows, encode_documents
from triptych.domains.language.metrics import CountModels
from triptych.domains.language.model import (
    N_SPECIALS,
    SEP,
    ModelConfig,
    Scored,
    SimpleModels,
    Task,
    Vocabulary,
)
from triptych.domains.language.sources import Source
from triptych.errors import UserError
from triptych.text.tokenizer import PAD
from triptych.training.engine.devices import device_of
from triptych.training.engine.evaluate import in_double
from triptych.training.engine.objective import Predictions
from triptych.training.loading.batches import Ragged

SHOWN = 5
"""Texts that are sampled after a validation."""


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
        encoded = encode_documents(source.items(split), vocabulary.tokenizer)
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

    def simple_models(self, training: Windows, scored: Scored[Windows]) -> SimpleModels:
        model = CountModels(*training.pairs(), training.vocabulary)
        nats = model.nats(*scored.examples.pairs(scored.request.limit))
        perplexity = {name: math.exp(value) for name, value in nats.items()}
        return {"nats_per_token": nats, "perplexity": perplexity}


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
