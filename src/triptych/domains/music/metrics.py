"""Scores of music models: nats per token and per note, scores by position, count models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.domains.music.data import PADDING, Batch
from triptych.domains.music.tokenizers.base import Ids, MusicTokenizer
from triptych.domains.music.tokenizers.chorales import (
    N_VOICES,
    STEPS_PER_QUARTER,
    ChoraleTokenizer,
)
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

    def nats_per_token(self, first: int, stop: int) -> float | None:
        """Return the mean over positions first to stop - 1; None where no token was scored."""
        tokens = int(self.tokens[first:stop].sum())
        return float(self.nats[first:stop].sum()) / tokens if tokens else None

    def metrics(self, trained_length: int) -> dict[str, float]:
        """Return nats per token within and beyond the length of the training's windows.

        Empty where the windows are no longer, or where no token lies beyond.
        """
        length = len(self.nats)
        within = self.nats_per_token(0, trained_length)
        beyond = self.nats_per_token(trained_length, length)
        if length <= trained_length or within is None or beyond is None:
            return {}
        return {"nats_per_token_within": within, "nats_per_token_beyond": beyond}

    def buckets(self, size: int) -> list[dict[str, Any]]:
        """Return the mean and the scored tokens of each `size` positions; empty ones are left out.

        first, last: positions in the window, from 0.
        """
        found = []
        for first in range(0, len(self.nats), size):
            stop = min(first + size, len(self.nats))
            mean = self.nats_per_token(first, stop)
            if mean is not None:
                tokens = int(self.tokens[first:stop].sum())
                bucket = {"first": first, "last": stop - 1}
                found.append({**bucket, "tokens": tokens, "nats_per_token": mean})
        return found


Contexts = dict[str, tuple[NDArray[np.int64], int]]
"""Name of a count model -> (index of the context of each token, number of contexts)."""


def count_models(
    tokenizer: MusicTokenizer, train: list[Ids], held_out: list[Ids]
) -> dict[str, float]:
    """Return nats per token of simple baselines on held-out pieces, by name.

    The uniform model, and tables of how often a token followed a context in the training pieces,
    with contexts of growing size.
    """
    size = tokenizer.vocabulary_size
    contexts = _chorale_contexts if isinstance(tokenizer, ChoraleTokenizer) else _event_contexts
    empty = contexts(np.zeros(0, dtype=np.int64), size)
    counts = {name: np.zeros(n * size, dtype=np.int64) for name, (_, n) in empty.items()}
    for tokens in train:
        for name, (context, _) in contexts(tokens, size).items():
            np.add.at(counts[name], context * size + tokens, 1)
    nats = dict.fromkeys(counts, 0.0)
    for tokens in held_out:
        for name, (context, n_contexts) in contexts(tokens, size).items():
            smooth = counts[name].reshape(n_contexts, size) + INITIAL_COUNT
            probability = smooth[context, tokens] / smooth.sum(1)[context]
            nats[name] -= float(np.log(probability).sum())
    n_tokens = sum(len(tokens) for tokens in held_out)
    return {"uniform": math.log(size)} | {name: total / n_tokens for name, total in nats.items()}


def _chorale_contexts(tokens: Ids, size: int) -> Contexts:
    position = np.arange(len(tokens))
    voice = position % N_VOICES
    # The voice's pitch one sixteenth before; `size` at the start.
    before = np.concatenate([np.full(N_VOICES, size), tokens])[: len(tokens)]
    own = voice * (size + 1) + before
    n_own = N_VOICES * (size + 1)
    beat = position // N_VOICES % STEPS_PER_QUARTER
    with_beat = (own * STEPS_PER_QUARTER + beat, n_own * STEPS_PER_QUARTER)
    return {
        "voice and previous pitch": (own, n_own),
        "voice, previous pitch and 16th in the quarter": with_beat,
    }


def _event_contexts(tokens: Ids, size: int) -> Contexts:
    before = np.concatenate([[size], tokens])[: len(tokens)]
    return {
        "frequency of the event": (np.zeros_like(tokens), 1),
        "previous event": (before, size + 1),
    }
