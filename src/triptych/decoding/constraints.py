"""Constraints on sequences of tokens: `LogitsConstraint`s, and phrases that an output must contain.

Each is a function of the tokens so far, computed on their device without waiting for it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from triptych.decoding.sampling import LogitsConstraint


class ByPriority:
    """Forbids a token where any of several constraints does, as long as a token is left.

    The first one never yields; a later one that would leave a row no token does not apply there.
    """

    def __init__(self, constraints: Sequence[LogitsConstraint]) -> None:
        self.constraints = constraints

    def __call__(self, values: Tensor) -> Tensor:
        forbidden, *others = (constraint(values) for constraint in self.constraints)
        for other in others:
            both = forbidden | other  # [B, V]
            forbidden = torch.where(both.all(1, keepdim=True), forbidden, both)
        return forbidden


class AnyForbids:
    """Forbids a token where any of several constraints does."""

    def __init__(self, constraints: Sequence[LogitsConstraint]) -> None:
        self.constraints = constraints

    def __call__(self, values: Tensor) -> Tensor:
        return torch.stack([constraint(values) for constraint in self.constraints]).any(0)  # [B, V]


class Forbidden:
    """Forbids the same tokens everywhere; device: of the values, where it is known before."""

    def __init__(
        self, tokens: Sequence[int], vocabulary: int, device: torch.device | str = "cpu"
    ) -> None:
        self.mask = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self.mask[list(tokens)] = True

    def __call__(self, values: Tensor) -> Tensor:
        self.mask = self.mask.to(values.device)
        return self.mask.expand(len(values), -1)  # [B, V]


class Lengths(Forbidden):
    """Forbids the end token within the first `least` tokens, and any other one after `most`."""

    def __init__(
        self, least: int, most: int | None, end: int, vocabulary: int, device: torch.device
    ) -> None:
        super().__init__([end], vocabulary, device)
        self.least, self.most = least, most
        self.nothing = torch.zeros_like(self.mask)

    def __call__(self, values: Tensor) -> Tensor:
        length = values.shape[1]
        mask = self.mask if length < self.least else self.nothing
        if self.most is not None and length >= self.most:
            mask = ~self.mask
        return mask.expand(len(values), -1)  # [B, V]


class NoRepeatedNgrams:
    """Forbids a token that would complete a run of n tokens which is already there.

    With n = 1 no token comes twice (Paulus et al. 2018, arXiv 1705.04304, section 2.5).
    """

    def __init__(self, n: int, vocabulary: int) -> None:
        self.n, self.vocabulary = n, vocabulary

    def __call__(self, values: Tensor) -> Tensor:
        """Values int64 [B, t] -> [B, V]; a value below 0 is no token, and part of no n-gram."""
        (batch, length), n = values.shape, self.n
        count = torch.zeros(batch, self.vocabulary, dtype=torch.int64, device=values.device)
        if length < n:
            return count.bool()
        ngrams = values.unfold(1, n, 1)  # [B, t - n + 1, n]
        context = values[:, length - n + 1 :].unsqueeze(1)  # [B, 1, n - 1]
        same = (ngrams[:, :, :-1] == context).all(2) & (ngrams >= 0).all(2)  # [B, t - n + 1]
        last = ngrams[:, :, -1].clamp(min=0)  # [B, t - n + 1]
        return count.scatter_add(1, last, same.long()) > 0  # [B, V]


class ForcedText:
    """Forbids every token with which the text could not begin with a given prefix.

    stem: the first tokens. rest: bytes that the text after them begins with, in whatever tokens; a
    token may reach beyond them, so that the prefix may end inside a token. token_bytes: bytes of
    each token, empty for a token without text, which is forbidden within the prefix.
    """

    def __init__(
        self, stem: Sequence[int], rest: bytes, token_bytes: Sequence[bytes], device: torch.device
    ) -> None:
        states = [[token == only for token in range(len(token_bytes))] for only in stem]
        for start in range(len(rest)):
            left = rest[start:]
            # One of a token's bytes and those to write begins with the other.
            agree = ((left.startswith(p) or p.startswith(left)) and p != b"" for p in token_bytes)
            states.append([*agree])
        states.append([True] * len(token_bytes))
        self.stem, self.last = len(stem), len(states) - 1
        self.forbidden = ~torch.tensor(states, device=device)  # [S, V]
        lengths = [len(piece) for piece in token_bytes]
        self.lengths = torch.tensor(lengths, device=device)  # [V]

    def __call__(self, values: Tensor) -> Tensor:
        batch, length = values.shape
        if length < self.stem:
            return self.forbidden[length].expand(batch, -1)  # [B, V]
        written = self.lengths[values[:, self.stem :]].sum(1)  # [B]
        return self.forbidden[(self.stem + written).clamp(max=self.last)]  # [B, V]


BEGIN = -1
"""Stands before the first token: a sequence of tokens that begins with it counts only there."""


class RequiredPhrases:
    """Number of tokens of required phrases that each continuation still lacks.

    For grid beam search (Hokamp and Liu 2017, arXiv 1704.07138): hypotheses compete only with those
    that lack as many tokens of the phrases, so that a phrase which the model finds improbable is
    not pruned while it is written.

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
        """Tokens lacking after values [B, t] and each of `tokens`, last any other: [B, S + 1]."""
        batch, count = len(values), len(self.tokens)
        begin = values.new_full((batch, 1), BEGIN)
        before = torch.cat([begin, values], dim=1).unsqueeze(1)  # [B, 1, 1 + t]
        other = values.new_full((batch, 1, 1), BEGIN - 1)  # in no phrase
        next_one = torch.cat([self.tokens.view(1, -1, 1).expand(batch, -1, -1), other], dim=1)
        after = torch.cat([before.expand(-1, count + 1, -1), next_one], dim=2)  # [B, S + 1, 2 + t]
        total = torch.zeros_like(after[..., 0])  # [B, S + 1]
        for variants in self.phrases:
            of_each = torch.stack([self._lacking(after, tokens) for tokens in variants])
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
