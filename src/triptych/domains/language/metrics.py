"""Simple models with which models of labels are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from triptych.domains.language.model import N_SPECIALS, SEP

if TYPE_CHECKING:
    from triptych.domains.language.tasks.labelled import LabelledExamples

INVERSE_PENALTY = 10.0
"""C in the objective |W|^2 / 2 + C (sum of nats) of the logistic regression."""


def simple_accuracies(
    training: LabelledExamples, examples: LabelledExamples, limit: int | None
) -> dict[str, float]:
    """Return the accuracy of simple models of the first examples, fitted on the training examples.

    most_frequent: the most frequent label of the training. word_overlap, of candidates: the
    one whose TF-IDF vector has the largest product with the context's. bag_of_words, otherwise:
    scikit-learn's logistic regression on TF-IDF of the tokens, those of a second text apart. Both
    are left out without scikit-learn.
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
        rows = (examples.rows[row] for row in range(len(expected) * examples.n_rows))
        texts = [np.split(row, [np.argmax(row == SEP) + 1]) for row in rows]
        context, candidate = map(weighted.transform, zip(*texts, strict=True))
        overlap = np.asarray(context.multiply(candidate).sum(1)).reshape(-1, examples.n_rows)
        return accuracies | {"word_overlap": float(np.mean(expected == overlap.argmax(1)))}
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
