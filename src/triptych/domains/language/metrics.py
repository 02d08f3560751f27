"""Pseudo-perplexity of masked-token models, and simple models of text with labels."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.models.encoder_only import MaskedTokenModel
from triptych.domains.language.data import LabelledExamples
from triptych.domains.language.model import MASK, N_SPECIALS, SEP
from triptych.text.batches import plan_batches
from triptych.text.tokenizer import PAD
from triptych.training.engine.evaluate import in_double, sum_scores
from triptych.training.loading.batches import Ragged
from triptych.types import Progress

INVERSE_PENALTY = 10.0
"""C in the objective |W|^2 / 2 + C (sum of nats) of the logistic regression."""


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
    for batch in plan_batches(rows.lengths[row][:, None], max_tokens, None):
        tokens = torch.from_numpy(rows.padded(row[batch], PAD))  # [B, L]
        at = torch.from_numpy(position[batch])  # [B]
        every = torch.arange(len(batch))
        expected = tokens[every, at].clone()  # [B]
        tokens[every, at] = MASK
        yield tokens, at, expected


def simple_accuracies(
    training: LabelledExamples, examples: LabelledExamples, limit: int | None
) -> dict[str, float]:
    """Return the accuracy of simple models of the first examples, fitted on the training examples.

    most_frequent: the most frequent label of the training. word_overlap, of candidates: the
    candidate that shares most with the context. bag_of_words, otherwise: scikit-learn's logistic
    regression on TF-IDF of the tokens, those of a second text apart; left out without scikit-learn.
    """
    expected = examples.labels[:limit]
    classes = np.bincount(training.labels)
    accuracies = {"most_frequent": float(np.mean(expected == classes.argmax()))}
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError:  # an optional package
        return accuracies
    weighted = TfidfVectorizer(analyzer=words_of, sublinear_tf=True)
    count = len(training)
    known = weighted.fit_transform(training.rows[i * training.n_rows] for i in range(count))
    if training.n_rows > 2:
        rarity = {word: weighted.idf_[column] for word, column in weighted.vocabulary_.items()}
        chosen = [_most_shared(examples, item, rarity) for item in range(len(expected))]
        return accuracies | {"word_overlap": float(np.mean(expected == chosen))}
    # Of two classes scikit-learn has one row of weights, which is the difference of two.
    penalty = INVERSE_PENALTY * (2 if len(classes) == 2 else 1)
    model = LogisticRegression(C=penalty, max_iter=10_000, tol=1e-10).fit(known, training.labels)
    rows = (examples.rows[item * examples.n_rows] for item in range(len(expected)))
    right = model.predict(weighted.transform(rows)) == expected
    return accuracies | {"bag_of_words": float(np.mean(right))}


def words_of(row: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return (number of the text, token) for each token of a row, without special ids."""
    text = np.cumsum(row == SEP)
    return [(int(k), int(token)) for k, token in zip(text, row, strict=True) if token >= N_SPECIALS]


def _most_shared(
    examples: LabelledExamples, item: int, rarity: dict[tuple[int, int], float]
) -> int:
    """Return the number of the candidate whose words are most similar to those of the context."""
    similarity = []
    for row in range(item * examples.n_rows, (item + 1) * examples.n_rows):
        words = set(words_of(examples.rows[row]))
        context = {token for text, token in words if text == 0}
        candidate = {token for text, token in words if text == 1}
        shared = sum(rarity.get((0, token), 0.0) for token in context & candidate)
        similarity.append(shared / math.sqrt(max(len(candidate), 1)))
    return int(np.argmax(similarity))
