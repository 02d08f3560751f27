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
        self._pairs = pairs  # [M], rising
        self._after = np.bincount(contexts, minlength=vocabulary)  # c(v), [V]
        self._different = np.bincount(pairs // vocabulary, minlength=vocabulary)  # T(v), [V]

    def bigram(self, contexts: Ids, targets: Ids) -> NDArray[np.float64]:
        """Return P(target | context) of each pair, [N]."""
        wanted = contexts * self.vocabulary + targets
        at = np.searchsorted(self._pairs, wanted).clip(max=max(len(self._pairs) - 1, 0))
        seen = np.where(self._pairs[at] == wanted, self._counts[at], 0)
        different = self._different[contexts]
        total = self._after[contexts] + different
        # Without a count for the context, T = 1 makes it the unigram model.
        different, total = np.where(total == 0, 1, different), np.where(total == 0, 1, total)
        found: NDArray[np.float64] = (seen + different * self.unigram[targets]) / total
        return found

    def likeliest(self, contexts: Ids) -> Ids:
        """Return the most probable token after each context, [N]."""
        best = np.zeros(self.vocabulary, dtype=np.int64)
        top = int(self.unigram.argmax())
        starts = np.searchsorted(self._pairs, np.arange(self.vocabulary + 1) * self.vocabulary)
        for context in np.unique(contexts):
            # A token that did not follow the context is at most as probable as `top`.
            followers = self._pairs[starts[context] : starts[context + 1]] % self.vocabulary
            candidates = np.append(followers, top)
            probabilities = self.bigram(np.full(len(candidates), context), candidates)
            best[context] = candidates[probabilities.argmax()]
        return best[contexts]

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
