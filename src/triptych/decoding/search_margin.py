"""Certificate of a beam search: how much every log p may change before the result does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from triptych.decoding.hypotheses import Hypothesis


class SearchMargin:
    """Smallest difference in log p per token between two candidates that a decision compared.

    If every log p per token changes by less than half of a row's margin, every decision about the
    row stays as it was, and so do its hypotheses. Near-ties, which rounding could decide, have a
    small margin: the caller may search them again in double precision.
    """

    def __init__(self, batch: int, beam: int) -> None:
        self.beam = beam
        self.margins = torch.full((batch,), torch.inf, dtype=torch.float64)  # nats per token

    def add_step(
        self, rows: Sequence[int], length: int, log_p: Tensor, ends: Tensor, lead: Tensor
    ) -> None:
        """Add the decisions of one step about R rows of the batch.

        length: tokens of the candidates. log_p [R, C]: of the candidates, best first, C above the
        beam. ends: bool [R, C], whether a candidate ends. lead [R]: score of the n-th finished
        hypothesis minus the bound of the open ones.
        """
        beam = self.beam
        # Which candidates stay open: the last one that does against the next one.
        still_open = log_p.masked_fill(ends, -torch.inf).topk(beam + 1, dim=1).values
        opened = still_open[:, beam - 1 :].diff(dim=1).neg()  # [R, 1]
        # Whether an end is among the best `beam`: against the first one below, or the last one in.
        within_beam = torch.arange(log_p.shape[1]) < beam
        last, next_one = log_p[:, beam - 1, None], log_p[:, beam, None]
        ended = torch.where(within_beam, log_p - next_one, last - log_p)
        ended = ended.masked_fill(~ends, torch.inf)  # [R, C]
        # Whether the search stops. Going on is no decision: a row that stops has an exact result.
        stop = lead.where(lead > 0, torch.inf).unsqueeze(1)  # [R, 1]
        gaps = torch.cat([opened, ended, stop], dim=1)
        # NaN: both candidates have log p = -inf, which is no decision.
        gap = gaps.nan_to_num(nan=torch.inf).amin(1) / length
        self.margins[rows] = self.margins[rows].minimum(gap)

    def of_result(
        self,
        row: int,
        length: int,
        finished: Sequence[Hypothesis],
        unfinished: Sequence[Hypothesis],
        n_best: int,
    ) -> float:
        """The margin of a row that stops after `length` tokens, with the order of its result.

        finished, unfinished: best first; the result takes n_best, unfinished ones last.
        """
        n_unfinished = max(0, n_best - len(finished))
        gaps = [
            better.score - worse.score
            for ranked, taken in ((finished, n_best), (unfinished, n_unfinished))
            for better, worse in list(pairwise(ranked))[:taken]
        ]
        return min([float(self.margins[row]), *(gap / length for gap in gaps)])
