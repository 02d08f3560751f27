"""Simple models of labelled text: the most frequent class, a bag of words, the overlap of words."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from triptych.domains.language.labelled_examples import LabelledExamples
from triptych.domains.language.vocabulary import N_SPECIALS, SEP

INVERSE_PENALTY = 10.0
"""C in the objective |W|^2 / 2 + C (sum of nats), as of scikit-learn's LogisticRegression."""


def simple_accuracies(
    training: LabelledExamples, examples: LabelledExamples, limit: int | None
) -> dict[str, float]:
    """Return the accuracy of simple models of the first examples, fitted on the training examples.

    most_frequent: the most frequent label of the training. word_overlap, of candidates: the
    candidate that shares most with the context. bag_of_words, otherwise: a logistic regression on
    TF-IDF of the tokens, those of a second text apart.
    """
    expected = examples.labels[:limit]
    classes = np.bincount(training.labels)
    accuracies = {"most_frequent": float(np.mean(expected == classes.argmax()))}
    rarity = _rarity(training)
    if training.n_rows > 2:
        chosen = [_most_shared(examples, item, rarity) for item in range(len(expected))]
        return accuracies | {"word_overlap": float(np.mean(expected == chosen))}
    columns = {word: column for column, word in enumerate(rarity)}
    known = _tf_idf(training, len(training), rarity, columns)
    weights = _logistic_regression(known, torch.from_numpy(training.labels))
    logits = _tf_idf(examples, len(expected), rarity, columns) @ weights[:-1] + weights[-1]
    right = logits.argmax(-1).numpy() == expected
    return accuracies | {"bag_of_words": float(np.mean(right))}


def words_of(row: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return (number of the text, token) for each token of a row, without special ids."""
    text = np.cumsum(row == SEP)
    return [(int(k), int(token)) for k, token in zip(text, row, strict=True) if token >= N_SPECIALS]


def _rarity(training: LabelledExamples) -> dict[tuple[int, int], float]:
    """Return 1 + log((1 + N) / (1 + examples with the word)) for each word of the training."""
    count = len(training)
    rows = (training.rows[item * training.n_rows] for item in range(count))
    documents = Counter(word for row in rows for word in set(words_of(row)))
    return {word: 1 + math.log((1 + count) / (1 + n)) for word, n in sorted(documents.items())}


def _tf_idf(
    examples: LabelledExamples,
    count: int,
    rarity: dict[tuple[int, int], float],
    columns: dict[tuple[int, int], int],
) -> Tensor:
    """Return (1 + log tf) idf of the words in the first row of each example, sparse [N, W].

    Rows have length 1; words that are not in the training are left out.
    """
    where, values = [], []
    for item in range(count):
        words = Counter(words_of(examples.rows[item * examples.n_rows]))
        weights = {w: (1 + math.log(n)) * rarity[w] for w, n in words.items() if w in rarity}
        length = math.hypot(*weights.values())
        where += [(item, columns[word]) for word in weights]
        values += [weight / length for weight in weights.values()]
    index = torch.tensor(where, dtype=torch.int64).reshape(-1, 2).T  # [2, entries]
    data = torch.tensor(values, dtype=torch.float64)  # [entries]
    size = (count, len(columns))
    return torch.sparse_coo_tensor(index, data, size, check_invariants=True).coalesce()


def _logistic_regression(words: Tensor, labels: Tensor) -> Tensor:
    """Return weights with the bias as last row, [W + 1, C]; words: sparse [N, W]."""
    weights = torch.zeros(
        words.shape[1] + 1, int(labels.max()) + 1, dtype=torch.float64, requires_grad=True
    )  # [W + 1, C]
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        logits = words @ weights[:-1] + weights[-1]  # [N, C]
        nats = F.cross_entropy(logits, labels, reduction="sum")
        loss: Tensor = weights[:-1].square().sum() / 2 / INVERSE_PENALTY + nats
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(objective)
    return weights.detach()


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
