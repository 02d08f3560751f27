"""Count models of masked tokens: unigram, bigram, and a Markov chain given both neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from triptych.domains.language.count_models import CountModels, Ids
from triptych.domains.language.masked_examples import MaskedBatch
from triptych.domains.language.vocabulary import MASK, N_SPECIALS
from triptych.training.loading.batches import Ragged

BOTH = "both neighbours"
"""Name of the model that reads the token on either side."""


class MaskedCounts:
    """Predictions of single tokens from counts of the training rows.

    With both neighbours the bigram model is a Markov chain, whose probability of a token between
    l and r is P(w | l, r) = P(w | l) P(r | w) / sum of the same over all tokens. A masked left
    neighbour leaves the unigram model in place of P(w | l), a masked right one leaves out P(r | w).

    rows: [CLS] ... [SEP]. vocabulary: number of ids.
    """

    def __init__(self, rows: Ragged, vocabulary: int) -> None:
        values = rows.values.astype(np.int64)
        later = np.ones(len(values), dtype=bool)
        later[rows.offsets[:-1]] = False  # [CLS]
        inner = later.copy()
        inner[rows.offsets[1:] - 1] = False  # [SEP]
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
        if right != MASK:
            product = product * self.chain.before(right)
        product[:N_SPECIALS] = 0.0
        total: NDArray[np.float64] = product / product.sum()
        return total


def neighbours(batch: MaskedBatch) -> tuple[Ids, Ids, Ids]:
    """Return the tokens on the left and right of the predicted ones as read, and these, [M] each.

    A predicted token lies between [CLS] and [SEP], so that both neighbours are in its row.
    """
    tokens = batch.tokens.flatten()
    sides = (tokens[batch.where - 1], tokens[batch.where + 1], batch.expected)
    return tuple(side.numpy() for side in sides)  # type: ignore[return-value]
