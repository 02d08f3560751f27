"""Unigram and bigram models of tokens, with which the models of text are compared."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from triptych.training.loading.batches import Ragged

Ids = NDArray[np.int64]

INITIAL_COUNT = 0.5
"""Initial count of every token: the estimate of Krichevsky and Trofimov (1981)."""
BOTH = "both neighbours"
"""Name of the model that reads the token on either side."""


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


class MaskedCounts:
    """Predictions of single tokens from counts of the training rows.

    With both neighbours the bigram model is a Markov chain, whose probability of a token between
    l and r is P(w | l, r) = P(w | l) P(r | w) / sum of the same over all tokens. A masked left
    neighbour leaves the unigram model in place of P(w | l), a masked right one leaves out P(r | w).

    rows: with a special id at both ends. vocabulary: number of ids. n_specials: number of the
    special ids. mask: the id that stands for a masked token.
    """

    def __init__(self, rows: Ragged, vocabulary: int, *, n_specials: int, mask: int) -> None:
        self.n_specials, self.mask = n_specials, mask
        values = rows.values.astype(np.int64)
        later = np.ones(len(values), dtype=bool)
        later[rows.offsets[:-1]] = False  # the start
        inner = later.copy()
        inner[rows.offsets[1:] - 1] = False  # the end
        chain, tokens = np.flatnonzero(later), np.flatnonzero(inner)
        self.chain = CountModels(values[chain - 1], values[chain], vocabulary)
        self.counts = CountModels(values[tokens - 1], values[tokens], vocabulary)

    def scores(
        self, left: Ids, right: Ids, expected: Ids
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the mean nats and the accuracy of each model, by name.

        left, right [N]: the neighbours of each token as a model reads them. expected [N]: tokens.
        """
        nats = self.counts.nats(left, expected)
        accuracy = self.counts.accuracy(left, expected)
        probability, likeliest = np.empty(len(expected)), np.empty(len(expected), dtype=np.int64)
        for number, (before, after) in enumerate(zip(left, right, strict=True)):
            every = self.between(int(before), int(after))  # [V]
            probability[number] = every[expected[number]]
            likeliest[number] = every.argmax()
        nats[BOTH] = float(-np.log(probability).mean())
        accuracy[BOTH] = float((likeliest == expected).mean())
        return nats, accuracy

    def between(self, left: int, right: int) -> NDArray[np.float64]:
        """Return P(token | left, right) of the Markov chain for every token, [V]."""
        product = self.chain.after(left)
        if right != self.mask:
            product = product * self.chain.before(right)
        product[: self.n_specials] = 0.0
        total: NDArray[np.float64] = product / product.sum()
        return total
