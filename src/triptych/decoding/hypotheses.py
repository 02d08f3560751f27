"""Result of a beam search: its hypotheses and their certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


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


def step_margin(
    length: int, log_p: Tensor, ends: Tensor, still_open: Tensor, lead: Tensor
) -> Tensor:
    """The margin of the decisions of one step, without waiting for the device: [R].

    length: tokens of the candidates. log_p [R, banks, C]: of the candidates, best first, C above
    the beam. ends: bool [R, banks, C], whether a candidate ends. still_open [R, banks, beam + 1]:
    log p of the best that do not end. lead [R]: score of the n-th finished hypothesis minus the
    bound of the open ones.
    """
    beam = still_open.shape[2] - 1
    # Which candidates stay open: the last one that does against the next one.
    opened = still_open[:, :, beam - 1 :].diff(dim=2).neg()  # [R, banks, 1]
    # Whether an end is among the best `beam`: against the first one below, or the last one in.
    last, next_one = log_p[:, :, beam - 1, None], log_p[:, :, beam, None]
    ended = torch.cat([log_p[:, :, :beam] - next_one, last - log_p[:, :, beam:]], dim=2)
    ended = ended.masked_fill(~ends, torch.inf)  # [R, banks, C]
    # Whether the search stops. Going on is no decision: a row that stops has an exact result.
    stop = lead.where(lead > 0, torch.inf).unsqueeze(1)  # [R, 1]
    gaps = torch.cat([opened.flatten(1), ended.flatten(1), stop], dim=1)
    # NaN: both candidates have log p = -inf, which is no decision.
    return gaps.nan_to_num(nan=torch.inf).amin(1) / length


def result_margin(
    of_steps: float,
    length: int,
    finished: Sequence[Hypothesis],
    unfinished: Sequence[Hypothesis],
    n_best: int,
) -> float:
    """The margin of a row that stops after `length` tokens, with the order of its result.

    of_steps: smallest `step_margin` of the row. finished: the n_best + 1 best ones, or all if there
    are fewer, best first. unfinished: all, best first; the result takes them after the finished.
    """
    n_unfinished = max(0, n_best - len(finished))
    gaps = [
        better.score - worse.score
        for ranked, taken in ((finished, n_best), (unfinished, n_unfinished))
        for better, worse in list(pairwise(ranked))[:taken]
    ]
    return min([of_steps, *(gap / length for gap in gaps)])
