"""The hypotheses of a beam search: how they score, which stay, which are the outcome.

No model in here: a step hands in the likeliest next words, and each row decides for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

PenaltyName = Literal["none", "average", "gnmt"]


@dataclass(frozen=True)
class LengthPenalty:
    """A hypothesis scores log p / penalty(length); the length counts its end token.

    `none`: 1. `average`: length. `gnmt`: ((5 + length) / 6) ^ alpha (Wu et al. 2016, eq. 14,
    without the coverage term; Vaswani et al. 2017 use alpha 0.6).
    """

    name: PenaltyName = "gnmt"
    """Formula: `none`, `average` or `gnmt`."""
    alpha: float = 0.6
    """Exponent of `gnmt`; 0 is no penalty."""

    def __post_init__(self) -> None:
        if self.name not in ("none", "average", "gnmt"):
            raise ValueError(f"length penalty is none, average or gnmt, got {self.name}")
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be 0 or more, got {self.alpha}")

    def __call__(self, length: Tensor) -> Tensor:
        """Divisor of log p at these lengths, at least 1; never falls as the length grows."""
        if self.name == "average":
            return length.double()
        if self.name == "gnmt":
            return ((5 + length.double()) / 6) ** self.alpha
        return torch.ones_like(length, dtype=torch.float64)


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens without start and end, its penalised score and its log p in nats."""

    tokens: list[int]
    score: float
    log_probability: float
    finished: bool


@dataclass(frozen=True)
class Found:
    """The outcome of one row's search."""

    best: list[Hypothesis]
    """The n best hypotheses, best first."""
    margin: float
    """Nats per token by which the closest decision of the search was made: had every log p been
    wrong by less than half of this for each of its tokens, `best` would hold the same tokens."""


@dataclass
class Rows:
    """What the search knows of each row, B first; on the CPU, where small steps cost least."""

    place: Tensor
    """The row's number in the call: int64 [B]."""
    limit: Tensor
    """Most tokens: int64 [B]."""
    bound: Tensor
    """Penalty at that length: [B]."""
    log_p: Tensor
    """Open hypotheses, best first: [B, beam]."""
    done_score: Tensor
    """The n + 1 best finished hypotheses, best first: [B, n + 1]."""
    done_log_p: Tensor
    done_length: Tensor
    """Their tokens, the end included."""
    done_parent: Tensor
    """The open hypotheses that they ended."""
    margin: Tensor
    """As in `Found`, so far: [B]."""

    @classmethod
    def first(cls, limit: Tensor, beam: int, n_best: int, penalty: LengthPenalty) -> Rows:
        """One open hypothesis a row, nothing in it."""
        bound = penalty(limit)  # [B]
        log_p = bound.new_full((len(limit), beam), -torch.inf)
        log_p[:, 0] = 0.0
        score = bound.new_full((len(limit), n_best + 1), -torch.inf)
        number = torch.zeros_like(score, dtype=torch.int64)
        place = torch.arange(len(limit))
        margin = torch.full_like(bound, torch.inf)
        return cls(place, limit, bound, log_p, score, score, number, number, margin)

    def select(self, rows: Tensor) -> Rows:
        """These rows alone."""
        return Rows(*(getattr(self, field.name)[rows] for field in fields(self)))

    def advance(
        self, value: Tensor, word: Tensor, length: int, end: int, penalty: LengthPenalty
    ) -> tuple[Tensor, Tensor]:
        """Extend the open hypotheses, which are `length` tokens long then.

        value, word [B beam, C]: the likeliest next words -> parent and word of those that stay
        open, 2 x int64 [B, beam]. C is 2 beam + 1: `beam` of the best may end, `beam` go on, and
        one is beaten by these, by how much belongs to the margin.
        """
        batch, beam = self.log_p.shape
        choices = value.shape[-1]
        joint = (self.log_p.unsqueeze(-1) + value.view(batch, beam, choices)).flatten(1)
        best, index = joint.topk(min(2 * beam + 1, joint.shape[1]), dim=1)  # [B, C]
        parent = index // choices
        word = word.view(batch, beam * choices).gather(1, index)  # [B, C]
        ends = word == end

        # Among the best `beam` candidates those that end are finished (so 1 is greedy search).
        among = torch.arange(best.shape[1]) < beam
        score = (best / penalty(torch.tensor(length))).masked_fill(~(ends & among), -torch.inf)
        pool = torch.cat([self.done_score, score], dim=1)
        self.done_score, keep = pool.topk(self.done_score.shape[1], dim=1)
        self.done_log_p = torch.cat([self.done_log_p, best], dim=1).gather(1, keep)
        self.done_parent = torch.cat([self.done_parent, parent], dim=1).gather(1, keep)
        lengths = torch.cat([self.done_length, torch.full_like(word, length)], dim=1)
        self.done_length = lengths.gather(1, keep)

        # The best `beam` candidates that do not end stay open.
        going, keep = best.masked_fill(ends, -torch.inf).topk(beam + 1, dim=1)
        self.log_p, keep = going[:, :beam], keep[:, :beam]

        # What was decided: who stays open, and whether an end is among the best `beam`.
        opened = going[:, beam - 1 :].diff(dim=1).neg()  # [B, 1]
        ended = torch.where(among, best - best[:, beam, None], best[:, beam - 1, None] - best)
        gaps = torch.cat([opened, ended.masked_fill(~ends, torch.inf)], dim=1)
        self._decided(gaps.nan_to_num(nan=torch.inf).amin(1), length)  # -inf - -inf: no decision
        return parent.gather(1, keep), word.gather(1, keep)

    def stops(self, length: int, *, greedy: bool) -> Tensor:
        """Whether a row has no more to win, or no more room: bool [B]."""
        full = self.limit <= length
        if greedy:  # the first end is final, though a longer output may score better
            return full | (self.done_score[:, 0] > -torch.inf)
        worst, hope = self.done_score[:, -2], self.log_p[:, 0] / self.bound
        beaten = hope <= worst
        lead = torch.where(beaten, worst - hope, torch.inf)
        self._decided(lead.nan_to_num(nan=torch.inf), length)
        return full | beaten

    def _decided(self, gap: Tensor, length: int) -> None:
        self.margin = self.margin.minimum(gap / length)


def outcomes(
    left: list[tuple[int, Rows]],
    words: list[Tensor],
    parents: list[Tensor],
    n_best: int,
    penalty: LengthPenalty,
) -> Iterator[tuple[int, Found]]:
    """Trace each row's best hypotheses back through the steps: (its place in the call, outcome).

    left: number of steps, and the rows that stopped then. words, parents: of the hypotheses that
    stayed open in each step, int64 [B, beam] with the rows in their places.
    """
    word, parent = torch.stack(words).tolist(), torch.stack(parents).tolist()  # [T][B][beam]

    def tokens(place: int, length: int, hypothesis: int) -> list[int]:
        backwards = []
        for t in reversed(range(length)):
            backwards.append(word[t][place][hypothesis])
            hypothesis = parent[t][place][hypothesis]
        return backwards[::-1]

    for steps, rows in left:
        open_score = rows.log_p / penalty(torch.tensor(steps))  # [B, beam]
        for row, place in enumerate(rows.place.tolist()):
            finished = [
                Hypothesis(tokens(place, length - 1, ended), score, log_p, finished=True)
                for score, log_p, length, ended in zip(
                    rows.done_score[row].tolist(),
                    rows.done_log_p[row].tolist(),
                    rows.done_length[row].tolist(),
                    rows.done_parent[row].tolist(),
                    strict=True,
                )
                if score > -torch.inf
            ]
            still_open = [
                Hypothesis(tokens(place, steps, number), score, log_p, finished=False)
                for number, (score, log_p) in enumerate(
                    zip(open_score[row].tolist(), rows.log_p[row].tolist(), strict=True)
                )
                if score > -torch.inf
            ]
            missing = max(0, n_best - len(finished))
            gaps = [
                better.score - worse.score
                for ranked, used in ((finished, n_best), (still_open, missing))
                for better, worse in list(pairwise(ranked))[:used]
            ]
            margin = min([float(rows.margin[row]), *(gap / steps for gap in gaps)])
            yield place, Found((finished[:n_best] + still_open)[:n_best], margin)
