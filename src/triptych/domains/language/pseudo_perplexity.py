"""Pseudo-perplexity of masked-token models (Salazar et al. 2020, arXiv 1910.14659)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.models.encoder_only import MaskedTokenModel
from triptych.domains.language.vocabulary import MASK
from triptych.text.tokenizer import PAD
from triptych.training.engine.evaluate import in_double, sum_scores
from triptych.training.loading.batches import Ragged, batches_by_length
from triptych.types import Progress


def pseudo_scores(
    model: MaskedTokenModel,
    rows: Ragged,
    chosen: NDArray[np.int64],
    *,
    max_tokens: int,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Return the pseudo-perplexity of rows, and the accuracy, each token masked in turn.

    The pseudo-perplexity is exp(-1/N sum log p(token | all others)), over the N tokens of all rows
    without [CLS] and [SEP]; section 2.3. It is no probability of the text. chosen: numbers of the
    rows, which begin with [CLS] and end with [SEP]. max_tokens: of a batch of masked copies.
    """

    def score(batch: tuple[Tensor, Tensor, Tensor]) -> dict[str, Tensor]:
        tokens, position, expected = batch
        features = model.encoder(tokens, padding=tokens == PAD)  # [B, L, D]
        at = features[torch.arange(len(tokens), device=tokens.device), position]  # [B, D]
        logits = model.logits(at)  # [B, V]
        return {
            "nats": in_double(model.head.nll(logits, expected)).sum(),
            "correct": in_double(logits.argmax(-1) == expected).sum(),
            "tokens": torch.tensor(float(len(tokens))),
        }

    batches = list(_batches(rows, chosen, max_tokens))
    totals = sum_scores(model, score, batches, progress)
    return {
        "pseudo_perplexity": math.exp(totals["nats"] / totals["tokens"]),
        "one_mask_accuracy": totals["correct"] / totals["tokens"],
    }


def _batches(
    rows: Ragged, chosen: NDArray[np.int64], max_tokens: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield copies of rows int64 [B, L], the masked position of each and its token, both [B]."""
    lengths = rows.lengths[chosen]
    row = np.repeat(chosen, lengths - 2)  # one copy for each token
    position = np.concatenate([np.arange(1, length - 1) for length in lengths])
    order = np.argsort(rows.lengths[row], kind="stable")
    planned = batches_by_length(order, rows.lengths[row][order], max_tokens, None)
    for batch in planned:
        tokens = torch.from_numpy(rows.padded(row[batch], PAD))  # [B, L]
        at = torch.from_numpy(position[batch])  # [B]
        every = torch.arange(len(batch))
        expected = tokens[every, at].clone()  # [B]
        tokens[every, at] = MASK
        yield tokens, at, expected
