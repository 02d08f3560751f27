"""Hypotheses of a beam search: their scores, the open and the finished ones, and the result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class LengthPenalty:
    """Divisor of a hypothesis's log p, by its length in tokens with the end token.

    none: 1. average: length. gnmt: ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14 without
    the coverage term; Vaswani et al. 2017 use alpha 0.6).
    """

    name: Literal["none", "average", "gnmt"] = "gnmt"
    """Formula."""
    alpha: float = 0.6
    """Exponent of `gnmt`, at least 0."""

    @classmethod
    def parse(cls, text: str) -> LengthPenalty:
        """The penalty that an option names: 0 or none, 1 or average, gnmt:ALPHA.

        Raises ValueError for other texts and for an alpha that is negative or not finite.
        """
        if text in ("0", "none"):
            return cls("none")
        if text in ("1", "average"):
            return cls("average")
        name, _, number = text.partition(":")
        try:
            alpha = float(number) if name == "gnmt" else math.nan
        except ValueError:
            alpha = math.nan
        if not 0 <= alpha < math.inf:
            raise ValueError(
                "length_penalty must be 0 (none), 1 (average) or gnmt:ALPHA with ALPHA at least 0, "
                f"such as gnmt:0.6, got {text}"
            )
        return cls("gnmt", alpha)

    def __str__(self) -> str:
        return f"gnmt:{self.alpha:g}" if self.name == "gnmt" else self.name

    def __call__(self, length: Tensor) -> Tensor:
        """The divisor at each length, float64, at least 1, not decreasing in the length."""
        if self.name == "average":
            return length.double()
        if self.name == "gnmt":
            return ((5 + length.double()) / 6) ** self.alpha
        return torch.ones_like(length, dtype=torch.float64)


@dataclass(frozen=True)
class Hypothesis:
    """One output sequence of a beam search."""

    tokens: list[int]
    """Token ids without start and end."""
    score: float
    """log p over the length penalty."""
    log_probability: float
    """log p in nats, the end token included where the hypothesis is finished."""
    finished: bool
    """Whether it ends with the end token rather than at the length limit."""


@dataclass(frozen=True)
class SearchResult:
    """The result of the search for one row."""

    best: list[Hypothesis]
    """The n best hypotheses, best first."""
    margin: float
    """Smallest difference in log p per token between two candidates that a decision compared, in
    nats. `best` holds the same tokens if every log p per token changes by less than half of it."""


@dataclass
class BeamState:
    """Open and finished hypotheses of each row, B first; kept on the CPU in float64.

    Every decision is made within a row, so that a result does not depend on the batch.
    """

    index: Tensor
    """Row of the call: int64 [B]."""
    max_length: Tensor
    """Length limit in tokens, the end included: int64 [B]."""
    max_penalty: Tensor
    """Length penalty at that limit: [B]."""
    log_p: Tensor
    """Of the open hypotheses, best first: [B, beam]."""
    finished_score: Tensor
    """Of the n + 1 best finished hypotheses, best first, -inf for none: [B, n + 1]."""
    finished_log_p: Tensor
    finished_length: Tensor
    """In tokens, the end included: int64 [B, n + 1]."""
    finished_parent: Tensor
    """The open hypothesis that each one extended by the end token: int64 [B, n + 1]."""
    margin: Tensor
    """As in `SearchResult`, over the decisions so far: [B]."""

    @classmethod
    def initial(
        cls, max_length: Tensor, beam: int, n_best: int, penalty: LengthPenalty
    ) -> BeamState:
        """One empty open hypothesis in each row."""
        max_penalty = penalty(max_length)  # [B]
        log_p = max_penalty.new_full((len(max_length), beam), -torch.inf)
        log_p[:, 0] = 0.0
        score = max_penalty.new_full((len(max_length), n_best + 1), -torch.inf)
        zeros = torch.zeros_like(score, dtype=torch.int64)
        index = torch.arange(len(max_length))
        margin = torch.full_like(max_penalty, torch.inf)
        return cls(index, max_length, max_penalty, log_p, score, score, zeros, zeros, margin)

    def select(self, rows: Tensor) -> BeamState:
        """The state of these rows."""
        return BeamState(*(getattr(self, field.name)[rows] for field in fields(self)))

    def advance(
        self, log_p: Tensor, token: Tensor, length: int, end: int, penalty: LengthPenalty
    ) -> tuple[Tensor, Tensor]:
        """Extend the open hypotheses to `length` tokens.

        log_p, token [B beam, C]: the most probable next tokens, C = 2 beam + 1: at most `beam` of
        the best candidates end, `beam` stay open, and the distance to the next one belongs to the
        margin. Returns parent and token of the hypotheses that stay open, 2 x int64 [B, beam].
        """
        batch, beam = self.log_p.shape
        choices = log_p.shape[-1]
        joint = self.log_p.unsqueeze(-1) + log_p.view(batch, beam, choices)  # [B, beam, C]
        best, index = joint.flatten(1).topk(min(2 * beam + 1, beam * choices), dim=1)  # [B, C]
        parent = index // choices
        token = token.view(batch, beam * choices).gather(1, index)  # [B, C]
        ends = token == end

        # Candidates that end are finished if they are among the best `beam`; beam 1 is greedy.
        within_beam = torch.arange(best.shape[1]) < beam
        score = best / penalty(torch.tensor(length))
        score = score.masked_fill(~(ends & within_beam), -torch.inf)
        pool = torch.cat([self.finished_score, score], dim=1)
        self.finished_score, keep = pool.topk(self.finished_score.shape[1], dim=1)
        self.finished_log_p = torch.cat([self.finished_log_p, best], dim=1).gather(1, keep)
        self.finished_parent = torch.cat([self.finished_parent, parent], dim=1).gather(1, keep)
        lengths = torch.cat([self.finished_length, torch.full_like(token, length)], dim=1)
        self.finished_length = lengths.gather(1, keep)

        # The best `beam` candidates that do not end stay open.
        remaining, keep = best.masked_fill(ends, -torch.inf).topk(beam + 1, dim=1)
        self.log_p, keep = remaining[:, :beam], keep[:, :beam]

        # Decisions: which candidates stay open, and whether an end is among the best `beam`.
        opened = remaining[:, beam - 1 :].diff(dim=1).neg()  # [B, 1]
        ended = torch.where(within_beam, best - best[:, beam, None], best[:, beam - 1, None] - best)
        gaps = torch.cat([opened, ended.masked_fill(~ends, torch.inf)], dim=1)
        # NaN: both candidates have log p = -inf, which is no decision.
        self._narrow_margin(gaps.nan_to_num(nan=torch.inf).amin(1), length)
        return parent.gather(1, keep), token.gather(1, keep)

    def stopped(self, length: int, *, greedy: bool) -> Tensor:
        """Whether no open hypothesis of a row can enter its n best any more: bool [B].

        log p only falls and the penalty is largest at the length limit, so the best open log p over
        that penalty bounds every later score (Huang et al. 2017, "When to finish?").
        """
        full = self.max_length <= length
        if greedy:  # the first end is final, though a longer output may score better
            return full | (self.finished_score[:, 0] > -torch.inf)
        worst, bound = self.finished_score[:, -2], self.log_p[:, 0] / self.max_penalty
        beaten = bound <= worst
        lead = torch.where(beaten, worst - bound, torch.inf)
        self._narrow_margin(lead.nan_to_num(nan=torch.inf), length)
        return full | beaten

    def _narrow_margin(self, gap: Tensor, length: int) -> None:
        self.margin = self.margin.minimum(gap / length)


def search_results(
    stopped: list[tuple[int, BeamState]],
    tokens: list[Tensor],
    parents: list[Tensor],
    n_best: int,
    penalty: LengthPenalty,
) -> Iterator[tuple[int, SearchResult]]:
    """Trace the best hypotheses back through the steps: pairs of row and result.

    stopped: number of steps, and the rows that stopped after them. tokens, parents: of the
    hypotheses that stayed open after each step, int64 [B, beam], B all rows of the call.
    """
    token, parent = torch.stack(tokens).tolist(), torch.stack(parents).tolist()  # [T][B][beam]

    def traced(row: int, length: int, hypothesis: int) -> list[int]:
        backwards = []
        for t in reversed(range(length)):
            backwards.append(token[t][row][hypothesis])
            hypothesis = parent[t][row][hypothesis]
        return backwards[::-1]

    for steps, state in stopped:
        open_score = state.log_p / penalty(torch.tensor(steps))  # [B, beam]
        for i, row in enumerate(state.index.tolist()):
            finished = [
                Hypothesis(traced(row, length - 1, ended), score, log_p, finished=True)
                for score, log_p, length, ended in zip(
                    state.finished_score[i].tolist(),
                    state.finished_log_p[i].tolist(),
                    state.finished_length[i].tolist(),
                    state.finished_parent[i].tolist(),
                    strict=True,
                )
                if score > -torch.inf
            ]
            unfinished = [
                Hypothesis(traced(row, steps, number), score, log_p, finished=False)
                for number, (score, log_p) in enumerate(
                    zip(open_score[i].tolist(), state.log_p[i].tolist(), strict=True)
                )
                if score > -torch.inf
            ]
            missing = max(0, n_best - len(finished))
            gaps = [
                better.score - worse.score
                for ranked, used in ((finished, n_best), (unfinished, missing))
                for better, worse in list(pairwise(ranked))[:used]
            ]
            margin = min([float(state.margin[i]), *(gap / steps for gap in gaps)])
            yield row, SearchResult((finished[:n_best] + unfinished)[:n_best], margin)
