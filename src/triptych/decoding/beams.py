"""The hypotheses of a beam search as tensors, their length penalty, and decisions with margins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from triptych.core.state import map_tensors
from triptych.errors import UserError


@dataclass(frozen=True)
class LengthPenalty:
    """Divisor of a hypothesis's log p, by its length in tokens with the end token.

    none: 1. average: length. gnmt: ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14 without
    the coverage term; Vaswani et al. 2017 use alpha 0.6).
    """

    name: Literal["none", "average", "gnmt"] = "gnmt"
    alpha: float = 0.6
    """Exponent of `gnmt`, at least 0."""

    @classmethod
    def parse(cls, text: str) -> LengthPenalty:
        """The penalty of an option: 0 or none, 1 or average, gnmt:ALPHA; else UserError."""
        if text in ("0", "none"):
            return cls("none")
        if text in ("1", "average"):
            return cls("average")
        name, _, alpha = text.partition(":")
        with suppress(ValueError):
            if name == "gnmt" and 0 <= float(alpha) < math.inf:
                return cls("gnmt", float(alpha))
        raise UserError(
            "length_penalty must be 0 (none), 1 (average) or gnmt:ALPHA with ALPHA at least 0, "
            f"such as gnmt:0.6, got {text}"
        )

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
    nats. If every log p per token changes by less than half of it, every decision stays as it was,
    and so do the tokens of `best`. Near-ties, which rounding could decide, have a small margin: the
    caller may search them again in double precision."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search."""

    beam: int
    """Open hypotheses of a bank."""
    n_best: int
    end: int
    """The token that ends a hypothesis."""
    penalty: Tensor
    """Length penalty at 0, 1, ..., L tokens, on the device: [L + 1]."""
    banks: int = 1
    """Groups, see `RequiredPhrases`, that compete within themselves; those of the first may end."""

    @property
    def width(self) -> int:
        """Open hypotheses of a row, the W of the shapes."""
        return self.beam * self.banks


@dataclass
class Beams:
    """The hypotheses of R rows on the device; a row that has stopped keeps its own.

    The open ones are sorted by bank and in each bank best first: W = beam times banks. The tokens
    of a row form a tree. Node (t - 1) W + i is the last token of open hypothesis i after t tokens;
    its parent is the node before it, below 0 for none. A log p or score of -inf stands for no
    hypothesis. K = n_best + 1, since the margin of the result needs the next one.
    """

    row: Tensor
    """Number of the row in the batch: int64 [R]."""
    max_length: Tensor
    """Limit in tokens, the end included: int64 [R]."""
    running: Tensor
    """Whether the row is still searched: bool [R]."""
    length: Tensor
    """Tokens of the open hypotheses: int64 [R]."""
    lead: Tensor
    """Score of the n-th finished hypothesis minus the bound of the open ones: [R]."""
    margin: Tensor
    """Smallest margin of the decisions so far, see `SearchResult`: [R]."""
    log_p: Tensor
    """Of the open hypotheses: [R, W]."""
    tokens: Tensor
    """Of the nodes: int64 [R, L W]."""
    parents: Tensor
    """Of the nodes: int64 [R, L W]."""
    ended_score: Tensor
    """Of the finished hypotheses: [R, K]."""
    ended_log_p: Tensor
    """Of the finished hypotheses: [R, K]."""
    ended_node: Tensor
    """The last token of the finished hypotheses before the end token: int64 [R, K]."""

    @classmethod
    def start(cls, settings: SearchSettings, max_lengths: Sequence[int]) -> Beams:
        """One open hypothesis without tokens in each row, in the last bank."""
        rows, width, kept = len(max_lengths), settings.width, settings.n_best + 1
        real = settings.penalty
        max_length = torch.tensor(max_lengths, device=real.device)
        log_p = real.new_full((rows, width), -torch.inf)
        log_p[:, width - settings.beam] = 0.0
        return cls(
            row=torch.arange(rows, device=real.device),
            max_length=max_length,
            running=torch.ones_like(max_length, dtype=torch.bool),
            length=torch.zeros_like(max_length),
            lead=real.new_zeros(rows),
            margin=real.new_full((rows,), torch.inf),
            log_p=log_p,
            tokens=max_length.new_zeros(rows, max(max_lengths) * width),
            parents=max_length.new_zeros(rows, max(max_lengths) * width),
            ended_score=real.new_full((rows, kept), -torch.inf),
            ended_log_p=real.new_full((rows, kept), -torch.inf),
            ended_node=max_length.new_zeros(rows, kept),
        )

    def extend(
        self, settings: SearchSettings, length: int, log_p: Tensor, parent: Tensor, token: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Decide about the candidates of `length` tokens, without waiting for the device.

        log_p [R, banks, C], best first in each bank; parent int64 [R, banks, C]: the open
        hypothesis that a candidate extends; token int64 [R, banks, C]: its last one. Returns the
        parents of the new open hypotheses and their last tokens: 2 x int64 [R, W].
        """
        beam, width = settings.beam, settings.width
        running = self.running.unsqueeze(1)  # [R, 1]
        ends = token == settings.end
        node = parent + (length - 2) * width  # [R, banks, C]

        # Of the best `beam` candidates of the first bank those that end are finished.
        first_log_p = log_p[:, 0, :beam]  # [R, beam]
        score = first_log_p / settings.penalty[length]
        score = score.masked_fill(~(ends[:, 0, :beam] & running), -torch.inf)  # [R, beam]
        scores = torch.cat([self.ended_score, score], dim=1)  # [R, K + beam]
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        kept = order[:, : settings.n_best + 1]  # [R, K]
        self.ended_score = scores[:, : settings.n_best + 1]
        self.ended_log_p = torch.cat([self.ended_log_p, first_log_p], dim=1).gather(1, kept)
        self.ended_node = torch.cat([self.ended_node, node[:, 0, :beam]], dim=1).gather(1, kept)

        # The best `beam` candidates that do not end stay open.
        still_open, kept = log_p.masked_fill(ends, -torch.inf).topk(beam, dim=2)
        token = token.gather(2, kept).flatten(1)  # [R, W]
        self.log_p = still_open.flatten(1).where(running, self.log_p)
        self.tokens[:, (length - 1) * width : length * width] = token
        self.parents[:, (length - 1) * width : length * width] = node.gather(2, kept).flatten(1)
        self.length = self.length + self.running

        # A row stops when no open hypothesis can enter its n best any more.
        bound = self.log_p.amax(1) / settings.penalty[self.max_length]  # [R]
        if width == 1:  # greedy search: no other hypothesis replaces the first end
            bound = torch.full_like(bound, -torch.inf)
        self.lead = self.ended_score[:, settings.n_best - 1] - bound
        margin = smallest_gap(log_p, ends, self.lead, beam) / length  # [R]
        self.margin = self.margin.minimum(margin.where(self.running, torch.inf))
        self.running = self.running & ~(self.lead > 0) & (self.max_length > length)
        return parent.gather(2, kept).flatten(1), token

    def select(self, rows: Tensor) -> Beams:
        """Copies of these rows, int64 [n]."""
        return map_tensors(self, lambda part: part.index_select(0, rows))

    def results(self, settings: SearchSettings) -> dict[int, SearchResult]:
        """The result of each row by its number in the batch. Waits for the device."""
        beam, n_best = settings.beam, settings.n_best
        slots = torch.arange(beam, device=self.length.device)
        open_node = (self.length.unsqueeze(1) - 1) * settings.width + slots  # [R, beam]
        open_log_p = self.log_p[:, :beam]  # only the first bank may end: [R, beam]
        open_score = open_log_p / settings.penalty[self.length].unsqueeze(1)  # [R, beam]
        ended = (self.ended_score, self.ended_log_p, self.ended_node)
        still_open = (open_score, open_log_p, open_node)
        shared = (self.row, self.length, self.margin, self.tokens, self.parents)
        parts = (part.tolist() for part in (*shared, *ended, *still_open))
        results = {}
        for row, length, margin, tokens, parents, *columns in zip(*parts, strict=True):
            finished, unfinished = (
                [
                    Hypothesis(path(tokens, parents, node), score, log_p, finished=flag)
                    for score, log_p, node in zip(*of_kind, strict=True)
                    if score > -torch.inf
                ]
                for of_kind, flag in ((columns[:3], True), (columns[3:], False))
            )
            taken = max(0, n_best - len(finished))
            gaps = [  # of the final order
                (better.score - worse.score) / length
                for hypotheses, count in ((finished, n_best), (unfinished, taken))
                for better, worse in list(pairwise(hypotheses))[:count]
            ]
            best = (finished[:n_best] + unfinished)[:n_best]
            results[row] = SearchResult(best, min([margin, *gaps]))
        return results


def path(tokens: Sequence[int], parents: Sequence[int], node: int) -> list[int]:
    """The tokens of a row's tree from its root to a node; none for a node below 0."""
    backwards = []
    while node >= 0:
        backwards.append(tokens[node])
        node = parents[node]
    return backwards[::-1]


def smallest_gap(log_p: Tensor, ends: Tensor, lead: Tensor, beam: int) -> Tensor:
    """Smallest difference between two candidates that the decisions of a step compare: [R].

    log_p, ends: [R, banks, C], of the candidates of the step; lead [R]: as in `Beams`.
    """
    # Which candidates stay open: the last one that does against the next one.
    still_open = log_p.masked_fill(ends, -torch.inf).topk(beam + 1, dim=2).values
    opened = still_open[:, :, beam - 1 :].diff(dim=2).neg()  # [R, banks, 1]
    # Whether an end is among the best `beam`: against the first one below, or the last one in.
    last, next_one = log_p[:, :, beam - 1, None], log_p[:, :, beam, None]
    ended = torch.cat([log_p[:, :, :beam] - next_one, last - log_p[:, :, beam:]], dim=2)
    ended = ended.masked_fill(~ends, torch.inf)  # [R, banks, C]
    # Whether the search stops. Going on is no decision: a row that stops has an exact result.
    stop = lead.where(lead > 0, torch.inf).unsqueeze(1)  # [R, 1]
    gaps = torch.cat([opened.flatten(1), ended.flatten(1), stop], dim=1)
    # NaN: both candidates have log p = -inf, which is no decision.
    return gaps.nan_to_num(nan=torch.inf).amin(1)  # [R]
