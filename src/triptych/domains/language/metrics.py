"""Simple models with which models of text are compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from triptych.domains.language.model import MASK, N_SPECIALS, SEP
from triptych.training.loading.batches import Ragged

if TYPE_CHECKING:
    from triptych.domains.language.tasks.labelled import LabelledExamples

Ids = NDArray[np.int64]

INITIAL_COUNT = 0.5
"""Initial count of every token: the estimate of Krichevsky and Trofimov (1981)."""
BOTH = "both neighbours"
"""Name of the model that reads the token on either side."""
INVERSE_PENALTY = 10.0
"""C in the objective |W|^2 / 2 + C (sum of nats) of the logistic regression."""


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
        self._pairs, self._counts = np.unique(contexts * vocabulary + targets, return_counts=True)
        self._before, self._next = np.divmod(self._pairs, vocabulary)  # [M], by context
        self._by_next = np.argsort(self._next, kind="stable")  # [M]
        different = np.bincount(self._before, minlength=vocabulary)  # T(v), [V]
        # With T = 1 a context that was not seen has the unigram model.
        self._different = np.maximum(different, 1)
        self._total = np.bincount(contexts, minlength=vocabulary) + self._different  # [V]

    def after(self, context: int) -> NDArray[np.float64]:
        """Return P(token | context) of the bigram model for every token, [V]."""
        row: NDArray[np.float64] = self.unigram * self._different[context]
        seen = slice(*np.searchsorted(self._before, [context, context + 1]))
        row[self._next[seen]] += self._counts[seen]
        row /= self._total[context]
        return row

    def before(self, target: int) -> NDArray[np.float64]:
        """Return P(target | context) of the bigram model for every context, [V]."""
        column: NDArray[np.float64] = self.unigram[target] * self._different
        ends = np.searchsorted(self._next, [target, target + 1], sorter=self._by_next)
        seen = self._by_next[slice(*ends)]
        column[self._before[seen]] += self._counts[seen]
        column /= self._total
        return column

    def bigram(self, contexts: Ids, targets: Ids) -> NDArray[np.float64]:
        """Return P(target | context) of each pair, [N]."""
        pairs = contexts * self.vocabulary + targets
        place = np.searchsorted(self._pairs[:-1], pairs)  # at most the last one
        seen = np.where(self._pairs[place] == pairs, self._counts[place], 0)
        mass: NDArray[np.float64] = self.unigram[targets] * self._different[contexts] + seen
        return mass / self._total[contexts]

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

    rows: with a special id at both ends. vocabulary: number of ids.
    """

    def __init__(self, rows: Ragged, vocabulary: int) -> None:
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
        """Return mean nats and accuracy by model, of tokens [N] between neighbours as read."""
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
        if right != MASK:
            product = product * self.chain.before(right)
        product[:N_SPECIALS] = 0.0
        total: NDArray[np.float64] = product / product.sum()
        return total
