"""Scores of music models: nats per token and per note, scores by position, count models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.domains.music.data import PADDING, Batch
from triptych.domains.music.tokenizers.base import Cycles, Ids, MusicTokenizer
from triptych.training.evaluate import in_double

INITIAL_COUNT = 0.5
"""Initial value of every count: the estimate of Krichevsky and Trofimov (1981)."""


def token_nll(model: DecoderOnly, batch: Batch) -> Tensor:
    """Return the negative log-likelihood of each scored token in nats, 0 elsewhere: [B, L]."""
    # Padding follows the music, where no causal model looks; any id serves as its input.
    values = batch.values.masked_fill(batch.values == PADDING, 0)
    nll = model.nll(values, previous=batch.previous)  # [B, L]
    return nll.masked_fill(~batch.scored, 0.0)


def batch_sums(batch: Batch, nll: Tensor) -> dict[str, Tensor]:
    """Return the sums over a batch of nats, scored tokens and notes; nll [B, L] of `token_nll`."""
    return {
        "nats": in_double(nll).sum(),
        "tokens": in_double(batch.scored.sum()),
        "notes": in_double(batch.onsets.sum()),
    }


def metrics_from_sums(sums: dict[str, float]) -> dict[str, float]:
    """Return nats per token, and all nats per note, from the sums over a split."""
    return {
        "nats_per_token": sums["nats"] / sums["tokens"],
        "nats_per_note": sums["nats"] / max(sums["notes"], 1.0),
    }


class PositionSums:
    """Nats and scored tokens by position in the window, added up over batches."""

    def __init__(self, length: int) -> None:
        self.nats = torch.zeros(length, dtype=torch.float64)
        self.tokens = torch.zeros(length, dtype=torch.int64)

    def add(self, batch: Batch, nll: Tensor) -> None:
        """Add a batch; nll [B, L] of `token_nll`."""
        self.nats[: nll.shape[1]] += in_double(nll).sum(0).cpu()
        self.tokens[: nll.shape[1]] += batch.scored.sum(0).cpu()

    def buckets(self, edges: Sequence[int]) -> list[dict[str, Any]]:
        """Return the mean and the scored tokens between neighbouring edges, where there are any.

        first, last: positions in the window, from 0.
        """
        found = []
        for first, stop in pairwise(edges):
            if tokens := int(self.tokens[first:stop].sum()):
                mean = float(self.nats[first:stop].sum()) / tokens
                bucket = {"first": first, "last": stop - 1}
                found.append({**bucket, "tokens": tokens, "nats_per_token": mean})
        return found


def count_models(
    tokenizer: MusicTokenizer, train: list[Ids], held_out: list[Ids]
) -> dict[str, float]:
    """Return nats per token of simple baselines on held-out pieces, by name.

    The uniform model, and tables of how often a token followed each of the tokenizer's
    `count_contexts` in the training pieces.
    """
    size = tokenizer.vocabulary_size
    n_tokens = sum(map(len, held_out))
    nats = {"uniform": math.log(size)}
    for name, (lag, cycles) in tokenizer.count_contexts.items():
        n_contexts = (size + 1) * math.prod(modulo for _, modulo in cycles)
        counts = np.full((n_contexts, size), INITIAL_COUNT)
        for tokens in train:
            np.add.at(counts, (_contexts(tokens, size, lag, cycles), tokens), 1)
        totals = counts.sum(1)
        total = 0.0
        for tokens in held_out:
            context = _contexts(tokens, size, lag, cycles)
            total -= float(np.log(counts[context, tokens] / totals[context]).sum())
        nats[name] = total / n_tokens
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
