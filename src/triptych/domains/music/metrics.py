"""Scores of music models: nats per token and per note, scores by position, count models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.domains.music.data import PADDING, Batch
from triptych.domains.music.melody import condition_of
from triptych.domains.music.notes import Ids
from triptych.domains.music.tokenizers.base import Cycles, MusicTokenizer
from triptych.training.engine.evaluate import in_double

INITIAL_COUNT = 0.5
"""Initial value of every count: the estimate of Krichevsky and Trofimov (1981)."""


def token_nll(model: DecoderOnly, batch: Batch) -> Tensor:
    """Return the negative log-likelihood of each scored token in nats, 0 elsewhere: [B, L]."""
    # Padding follows the music, where no causal model looks; any id serves as its input.
    values = batch.values.masked_fill(batch.values == PADDING, 0)
    condition = condition_of(model, batch.melody)
    nll = model.nll(values, previous=batch.previous, condition=condition)  # [B, L]
    return nll.masked_fill(~batch.scored, 0.0)


def batch_sums(batch: Batch, nll: Tensor) -> dict[str, Tensor]:
    """Return the sums over a batch of nats, scored tokens and notes; nll [B, L] of `token_nll`."""
    return {
        "nats": in_double(nll).sum(),
        "tokens": in_double(batch.scored.sum()),
        "notes": in_double(batch.onsets.sum()),
    }


class MusicScores:
    """Sums over a batch and their ratios, for the training module and the trained model."""

    domain: ClassVar[str] = "music"
    monitor: str = "nats_per_token"
    model: Any  # DecoderOnly

    def score(self, batch: Batch) -> dict[str, Tensor]:
        return batch_sums(batch, token_nll(self.model, batch))

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return nats per token, and all nats per note, from the sums over a split."""
        return {
            "nats_per_token": totals["nats"] / totals["tokens"],
            "nats_per_note": totals["nats"] / max(totals["notes"], 1.0),
        }


def mean_by_position(nats: Tensor, tokens: Tensor, edges: Sequence[int]) -> list[dict[str, Any]]:
    """Return nats per token and scored tokens between neighbouring edges, where there are any.

    nats, tokens [L]: sums by position in the window. first, last: positions from 0.
    """
    means = []
    for first, stop in pairwise(edges):
        if n_tokens := int(tokens[first:stop].sum()):
            mean = float(nats[first:stop].sum()) / n_tokens
            bucket = {"first": first, "last": stop - 1}
            means.append({**bucket, "tokens": n_tokens, "nats_per_token": mean})
    return means


def count_models(
    tokenizer: MusicTokenizer, train: Sequence[Ids], held_out: Sequence[Ids]
) -> dict[str, float]:
    """Return nats per token of simple baselines on held-out pieces, by name.

    The uniform model, and where there are training pieces tables of how often a token followed each
    of the tokenizer's `count_contexts` in them. train, held_out: ids of each piece.
    """
    size = tokenizer.vocabulary_size
    nats = {"uniform": math.log(size)}
    for name, (lag, cycles) in tokenizer.count_contexts.items() if len(train) else ():
        n_contexts = (size + 1) * math.prod(modulo for _, modulo in cycles)
        counts = np.full((n_contexts, size), INITIAL_COUNT)
        for tokens in train:
            np.add.at(counts, (_contexts(tokens, size, lag, cycles), tokens), 1)
        totals = counts.sum(1)
        total = 0.0
        for tokens in held_out:
            context = _contexts(tokens, size, lag, cycles)
            total -= float(np.log(counts[context, tokens] / totals[context]).sum())
        nats[name] = total / sum(map(len, held_out))
    return nats


def _contexts(tokens: Ids, size: int, lag: int | None, cycles: Cycles) -> Ids:
    """Return the index of the context of each token."""
    context = np.zeros(len(tokens), dtype=np.int64)
    if lag is not None:
        # `size` stands for the tokens before the piece.
        context = np.concatenate([np.full(lag, size), tokens])[: len(tokens)]
    for divide, modulo in cycles:
        context = context * modulo + np.arange(len(tokens)) // divide % modulo
    return context
