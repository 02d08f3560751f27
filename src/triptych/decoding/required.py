"""Phrases that must occur in the output of a beam search, in a grid of beams.

Grid beam search (Hokamp and Liu 2017, arXiv 1704.07138): hypotheses compete only with those that
lack as many tokens of the phrases, so that a phrase which the model finds improbable is not pruned
while it is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BEGIN = -1
"""Stands before the first token: a sequence of tokens that begins with it counts only there."""


class RequiredPhrases:
    """Number of tokens of required phrases that each continuation still lacks.

    phrases: for each phrase, all sequences of tokens that count as the phrase. A sequence lacks no
    token of them once it contains them; before, it lacks those that follow the longest beginning
    of them with which it ends. The one that lacks the fewest counts.
    """

    def __init__(self, phrases: Sequence[Sequence[Sequence[int]]], device: torch.device) -> None:
        self.phrases = [
            [torch.tensor(tokens, device=device) for tokens in variants] for variants in phrases
        ]
        every = {token for variants in phrases for tokens in variants for token in tokens}
        self.tokens = torch.tensor(sorted(every - {BEGIN}), device=device)
        """All tokens of the phrases: int64 [S]. Any other token interrupts a phrase."""
        self.n_banks = 1 + sum(min(map(len, variants)) for variants in phrases)
        """Possible numbers of tokens that are lacking, from 0 on."""

    def __call__(self, values: Tensor) -> Tensor:
        """Tokens lacking after each of `tokens`, and last after any other: int64 [B, S + 1].

        values: tokens so far, int64 [B, t].
        """
        batch, count = len(values), len(self.tokens)
        begin = values.new_full((batch, 1), BEGIN)
        before = torch.cat([begin, values], dim=1).unsqueeze(1)  # [B, 1, 1 + t]
        other = values.new_full((batch, 1, 1), BEGIN - 1)  # in no phrase
        next_one = torch.cat([self.tokens.view(1, -1, 1).expand(batch, -1, -1), other], dim=1)
        after = torch.cat([before.expand(-1, count + 1, -1), next_one], dim=2)  # [B, S + 1, 2 + t]
        return self._lacking_all(after)  # [B, S + 1]

    def _lacking_all(self, values: Tensor) -> Tensor:
        """Tokens of all phrases that sequences int64 [..., t] lack: int64 [...]."""
        total = torch.zeros_like(values[..., 0])  # [...]
        for variants in self.phrases:
            of_each = torch.stack([self._lacking(values, tokens) for tokens in variants])
            total = total + of_each.amin(0)
        return total

    def _lacking(self, values: Tensor, tokens: Tensor) -> Tensor:
        """Tokens that sequences lack of one sequence of tokens [m]: int64 [...]."""
        size, length = len(tokens), values.shape[-1]
        lacking = torch.full_like(values[..., 0], size)
        for begun in range(1, min(size, length + 1)):
            ends = (values[..., length - begun :] == tokens[:begun]).all(-1)  # [...]
            lacking = lacking.masked_fill(ends, size - begun)  # the longest beginning is the last
        if length >= size:
            whole = (values.unfold(-1, size, 1) == tokens).all(-1).any(-1)  # [...]
            lacking = lacking.masked_fill(whole, 0)
        return lacking
