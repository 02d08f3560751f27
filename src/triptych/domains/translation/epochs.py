"""The training pairs of each epoch: always the same ids, or pieces that are drawn anew."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from triptych.domains.translation.bpe_dropout import DroppedMerges
from triptych.domains.translation.corpora import Pair
from triptych.domains.translation.data import Batch, EncodedPairs, plan_batches
from triptych.domains.translation.tokenizer import Tokenizers

AT_ONCE = 1_000
"""Lines whose pieces are drawn together: enough to be fast, few enough for little memory."""


class TrainingPairs:
    """Pairs in batches, epoch by epoch.

    With dropout the pieces of all pairs are drawn before an epoch is planned, so that its batches
    are cut by the lengths that they have: planned by the lengths without dropout, rows of a batch
    would differ in length and its padded size grow by 1.8 where its tokens grow by 1.3 (Multi30k,
    dropout 0.1). Items are
    then numbered on from epoch to epoch, so that a batch knows which epoch's pieces it takes.

    dropout: probability of passing over a merge of the BPE, 0 to below 1; see `bpe_dropout`.
    """

    def __init__(self, pairs: Sequence[Pair], tokenizers: Tokenizers, *, dropout: float) -> None:
        self.encoded = EncodedPairs(pairs, tokenizers)
        """The pairs without dropout."""
        sides = (
            (tokenizers.source, [source for source, _ in pairs]),
            (tokenizers.target, [target for _, target in pairs]),
        )
        self._dropped = [
            DroppedMerges(tokenizer, lines, dropout=dropout)
            for tokenizer, lines in sides
            if dropout > 0
        ]
        self._drawn: dict[int, EncodedPairs] = {}

    def of(self, epoch: int) -> EncodedPairs:
        """The pairs as this epoch, which must have been planned, has them."""
        return self._drawn[epoch] if self._dropped else self.encoded

    def plan(
        self, epoch: int, chosen: Sequence[int], *, budget: int, generator: torch.Generator
    ) -> list[list[int]]:
        """The epoch's batches of the chosen pairs, as items for `batch`: see `plan_batches`.

        generator: of the epoch; with the same one it gives the same pieces and the same batches.
        """
        if self._dropped:
            # Ranks that take turns look at two epochs at once around a border, as the loader does.
            self._drawn = {e: pairs for e, pairs in self._drawn.items() if e >= epoch - 1}
            self._drawn[epoch] = EncodedPairs.of_ids(
                *(self._draw(side, generator) for side in self._dropped)
            )
        batches = plan_batches(self.of(epoch), chosen, budget=budget, generator=generator)
        first = epoch * len(self.encoded) if self._dropped else 0
        return [[first + index for index in batch] for batch in batches]

    def batch(self, items: Sequence[int]) -> Batch:
        """The pairs of these items, all of one epoch, side by side."""
        epoch = items[0] // len(self.encoded)
        return self.of(epoch).batch([item % len(self.encoded) for item in items])

    def _draw(self, side: DroppedMerges, generator: torch.Generator) -> list[list[int]]:
        """Ids of every line of one side."""
        count = len(self.encoded)
        return [
            row
            for start in range(0, count, AT_ONCE)
            for row in side.rows(range(start, min(start + AT_ONCE, count)), generator)
        ]
