"""Constraints on sequences of tokens, for sampling and beam search; see `LogitsConstraint`.

Each is a function of the tokens so far, computed on their device without waiting for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from triptych.decoding.sampling import LogitsConstraint


class ByPriority:
    """Forbids a token where any of several constraints does, as long as a token is left.

    constraints: the most important one first, which never yields. A later one that would leave a
    row without any token does not apply to that row at that position.
    """

    def __init__(self, constraints: Sequence[LogitsConstraint]) -> None:
        self.constraints = constraints

    def __call__(self, values: Tensor) -> Tensor:
        forbidden, *others = (constraint(values) for constraint in self.constraints)
        for other in others:
            both = forbidden | other  # [B, V]
            forbidden = torch.where(both.all(1, keepdim=True), forbidden, both)
        return forbidden


class NoRepeatedNgrams:
    """Forbids a token that would complete a run of n tokens which is already there.

    With n = 1 no token comes twice (Paulus et al. 2018, arXiv 1705.04304, section 2.5).
    """

    def __init__(self, n: int, vocabulary: int) -> None:
        self.n, self.vocabulary = n, vocabulary

    def __call__(self, values: Tensor) -> Tensor:
        return repeated_ngrams(values, self.n, self.vocabulary)


def repeated_ngrams(values: Tensor, n: int, vocabulary: int) -> Tensor:
    """Tokens that would complete an n-gram that occurs in the sequence: bool [B, V].

    values int64 [B, t]; a value below 0 is no token, and part of no n-gram.
    """
    batch, length = values.shape
    count = torch.zeros(batch, vocabulary, dtype=torch.int64, device=values.device)
    if length < n:
        return count.bool()
    ngrams = values.unfold(1, n, 1)  # [B, t - n + 1, n]
    context = values[:, length - n + 1 :].unsqueeze(1)  # [B, 1, n - 1]
    same = (ngrams[:, :, :-1] == context).all(2) & (ngrams >= 0).all(2)  # [B, t - n + 1]
    last = ngrams[:, :, -1].clamp(min=0)  # [B, t - n + 1]
    return count.scatter_add(1, last, same.long()) > 0  # [B, V]
