"""The certificate of a beam search: how close the closest of its decisions was."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from triptych.decoding.beams import Beams, Ranked, SearchSettings
from triptych.decoding.hypotheses import SearchResult


class Margins:
    """Smallest margin of the decisions about each row, observed from outside the `Beams`.

    A margin is a difference in log p per token between two candidates that a decision compared, in
    nats. n_rows: of the batch.
    """

    def __init__(self, settings: SearchSettings, n_rows: int) -> None:
        self.settings = settings
        self.of_steps = settings.penalty.new_full((n_rows,), torch.inf)
        """Of the steps so far: [B]."""

    def observe(self, beams: Beams, length: int, log_p: Tensor, token: Tensor) -> None:
        """Take in the step that has extended `beams`, without waiting for the device.

        log_p, token: [R, banks, C], of the candidates of `length` tokens, as in `Beams.extend`.
        """
        beam = self.settings.beam
        ends = token == self.settings.end
        # Which candidates stay open: the last one that does against the next one.
        still_open = log_p.masked_fill(ends, -torch.inf).topk(beam + 1, dim=2).values
        opened = still_open[:, :, beam - 1 :].diff(dim=2).neg()  # [R, banks, 1]
        # Whether an end is among the best `beam`: against the first one below, or the last one in.
        last, next_one = log_p[:, :, beam - 1, None], log_p[:, :, beam, None]
        ended = torch.cat([log_p[:, :, :beam] - next_one, last - log_p[:, :, beam:]], dim=2)
        ended = ended.masked_fill(~ends, torch.inf)  # [R, banks, C]
        # Whether the search stops. Going on is no decision: a row that stops has an exact result.
        stop = beams.lead.where(beams.lead > 0, torch.inf).unsqueeze(1)  # [R, 1]
        gaps = torch.cat([opened.flatten(1), ended.flatten(1), stop], dim=1)
        # NaN: both candidates have log p = -inf, which is no decision.
        margin = gaps.nan_to_num(nan=torch.inf).amin(1) / length  # [R]
        margin = margin.where(beams.length == length, torch.inf)  # rows that had stopped before
        self.of_steps.scatter_reduce_(0, beams.row, margin, "amin")

    def results(self, ranked: Mapping[int, Ranked]) -> dict[int, SearchResult]:
        """The results of rows, whose margins have the order of the result too.

        Waits for the device.
        """
        n_best, of_steps = self.settings.n_best, self.of_steps.tolist()
        results = {}
        for row, (length, finished, unfinished) in ranked.items():
            taken = max(0, n_best - len(finished))
            gaps = [
                (better.score - worse.score) / length
                for hypotheses, count in ((finished, n_best), (unfinished, taken))
                for better, worse in list(pairwise(hypotheses))[:count]
            ]
            best = (finished[:n_best] + unfinished)[:n_best]
            results[row] = SearchResult(best, min([of_steps[row], *gaps]))
        return results
