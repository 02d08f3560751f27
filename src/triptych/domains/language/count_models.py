"""Unigram and bigram models, with which the models of text are compared."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

INITIAL_COUNT = 0.5
"""Initial count of every token: the estimate of Krichevsky and Trofimov (1981)."""


class CountModels:
    """How often each token occurred, and how often after each token.

    The bigram model is interpolated with the unigram model by the rule of Witten and Bell (1991),
    which has no setting to tune: P(w | v) = (c(v, w) + T(v) P(w)) / (c(v) + T(v)), with T(v) the
    number of different tokens that followed v. After a token that was not seen it is the unigram
    model.

    contexts, targets [N]: the token before each predicted one, and the predicted one. vocabulary:
    number of ids.
    """

    def __init__(self, contexts: Ids, targets: Ids, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        counts = np.bincount(targets, minlength=vocabulary) + INITIAL_COUNT
        self.unigram = counts / counts.sum()  # [V]
        pairs, self._counts = np.unique(contexts * vocabulary + targets, return_counts=True)
        self._before, self._next = pairs // vocabulary, pairs % vocabulary  # [M], by context
        self._starts = np.searchsorted(self._before, np.arange(vocabulary + 1))  # [V + 1]
        different = np.bincount(self._before, minlength=vocabulary)  # T(v), [V]
        self._total = np.bincount(contexts, minlength=vocabulary) + different  # c(v) + T(v), [V]
        # With T = 1 a context that was not seen has the unigram model.
        self._different = np.where(self._total == 0, 1, different)
        self._total = np.where(self._total == 0, 1, self._total)
        self._by_target = np.argsort(self._next, kind="stable")  # [M]
        self._ends = np.searchsorted(self._next[self._by_target], np.arange(vocabulary + 1))

    def after(self, context: int) -> NDArray[np.float64]:
        """Return P(token | context) of the bigram model for every token, [V]."""
        row: NDArray[np.float64] = self.unigram * self._different[context]
        seen = slice(self._starts[context], self._starts[context + 1])
        row[self._next[seen]] += self._counts[seen]
        row /= self._total[context]
        return row

    def before(self, target: int) -> NDArray[np.float64]:
        """Return P(target | context) of the bigram model for every context, [V]."""
        column: NDArray[np.float64] = self.unigram[target] * self._different
        seen = self._by_target[self._ends[target] : self._ends[target + 1]]
        column[self._before[seen]] += self._counts[seen]
        column /= self._total
        return column

    def bigram(self, contexts: Ids, targets: Ids) -> NDArray[np.float64]:
        """Return P(target | context) of each pair, [N]."""
        probabilities = np.empty(len(contexts))
        for context in np.unique(contexts):
            chosen = contexts == context
            probabilities[chosen] = self.after(int(context))[targets[chosen]]
        return probabilities

    def likeliest(self, contexts: Ids) -> Ids:
        """Return the most probable token after each context, [N]."""
        unique, of = np.unique(contexts, return_inverse=True)
        return np.array([self.after(int(context)).argmax() for context in unique])[of]

    def nats(self, contexts: Ids, targets: Ids) -> dict[str, float]:
        """Return the mean nats per target of the uniform, the unigram and the bigram model."""
        return {
            "uniform": math.log(self.vocabulary),
            "unigram": float(-np.log(self.unigram[targets]).mean()),
            "bigram": float(-np.log(self.bigram(contexts, targets)).mean()),
        }

    def accuracy(self, contexts: Ids, targets: Ids) -> dict[str, float]:
        """Return the share of targets that the unigram and the bigram model predict."""
        return {
            "unigram": float((targets == self.unigram.argmax()).mean()),
            "bigram": float((targets == self.likeliest(contexts)).mean()),
        }
