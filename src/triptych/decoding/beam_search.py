"""Beam search over a model with a cache."""

from __future__ import annotations

from bisect import insort

import torch
from torch import Tensor

from triptych.core.attention.context import KVCache
from triptych.core.heads import at_least_float32
from triptych.core.models.base import (
    MIN_DROP_SHARE,
    AutoregressiveModel,
    reorder_rows,
    select_rows,
)
from triptych.decoding.hypotheses import (
    Hypothesis,
    LengthPenalty,
    SearchMargin,
    SearchResult,
)


@torch.no_grad()
def beam_search(
    model: AutoregressiveModel,
    cache: KVCache,
    *,
    beam: int,
    start: int,
    end: int,
    max_lengths: Tensor,
    penalty: LengthPenalty | None = None,
    n_best: int = 1,
    forbidden: tuple[int, ...] = (),
) -> list[SearchResult]:
    """The n best outputs of each row, n from 1 to beam.

    cache: of the model for B rows, without any position. The search expands it to B x beam rows;
    the tensors of the encoder's memory, whose names begin with memory_, keep B rows. max_lengths:
    int64 [B], limit of each row in tokens, its end included. penalty: default gnmt:0.6. forbidden:
    tokens never produced (padding, start).

    log p only falls and the penalty is largest at the length limit, so the best open log p over
    that penalty bounds every later score: a row stops when its n best are above the bound (Huang
    et al. 2017, "When to finish?"). If too few have finished at the length limit, the best open
    ones follow, marked as unfinished. A beam of 1 is greedy search: its first end is final. Every
    decision is made within a row, so that a result does not depend on the batch.
    """
    penalty = penalty or LengthPenalty()
    batch, device = max_lengths.shape[0], max_lengths.device
    max_lengths = max_lengths.cpu()
    longest = int(max_lengths.max())
    positions = torch.arange(longest, device=device)
    max_penalty = penalty(max_lengths)  # [B]
    finished: list[list[Hypothesis]] = [[] for _ in range(batch)]  # best first
    nth_score = torch.full_like(max_penalty, -torch.inf)  # of the n-th finished one: [B]
    margin = SearchMargin(batch, beam)
    results: dict[int, SearchResult] = {}

    # The R rows that are still searched, and their open hypotheses, on the CPU.
    rows = list(range(batch))
    log_p = torch.full((batch, beam), -torch.inf, dtype=torch.float64)  # [R, beam], best first
    log_p[:, 0] = 0.0
    tokens = torch.full((batch, beam, 1), start)  # [R, beam, length], start included
    cache = select_rows(cache, torch.arange(batch, device=device).repeat_interleave(beam))

    for length in range(1, longest + 1):
        filled = model.cache_view(cache, length)
        last = tokens[:, :, -1].reshape(-1, 1).to(device)  # [R beam, 1]
        logits = model.step(last, positions[length - 1 : length], filled)[:, 0]  # [R beam, V]
        best, parent, token = _best_candidates(log_p, logits, forbidden)  # 3 x [R, C]
        ends = token == end

        # Of the best `beam` candidates those that end are finished.
        scores = best / penalty(torch.tensor(length))
        for i, j in (ends & (best > -torch.inf))[:, :beam].nonzero().tolist():
            words = tokens[i, parent[i, j], 1:].tolist()
            found = Hypothesis(words, float(scores[i, j]), float(best[i, j]), finished=True)
            of_row = finished[rows[i]]
            insort(of_row, found, key=lambda hypothesis: -hypothesis.score)
            if len(of_row) >= n_best:
                nth_score[rows[i]] = of_row[n_best - 1].score

        # The best `beam` candidates that do not end stay open.
        log_p, keep = best.masked_fill(ends, -torch.inf).topk(beam, dim=1)  # 2 x [R, beam]
        parent, token = parent.gather(1, keep), token.gather(1, keep)
        index = torch.arange(len(rows)).unsqueeze(1)  # [R, 1]
        tokens = torch.cat([tokens[index, parent], token.unsqueeze(2)], dim=2)

        # A row stops when no open hypothesis can enter its n best any more.
        bound = log_p[:, 0] / max_penalty[rows]  # [R]
        if beam == 1:  # greedy search: no other hypothesis replaces the first end
            bound = bound.fill_(-torch.inf)
        lead = nth_score[rows] - bound  # [R]
        margin.add_step(rows, length, best, ends, lead)
        stops = (lead > 0) | (max_lengths[rows] <= length)
        open_scores = log_p / penalty(torch.tensor(length))  # [R, beam]
        for i in stops.nonzero().flatten().tolist():
            row = rows[i]
            if row in results:
                continue
            unfinished = [
                Hypothesis(words[1:], score, total, finished=False)
                for words, score, total in zip(
                    tokens[i].tolist(), open_scores[i].tolist(), log_p[i].tolist(), strict=True
                )
                if total > -torch.inf
            ]
            best_of_row = (finished[row][:n_best] + unfinished)[:n_best]
            certified = margin.of_result(row, length, finished[row], unfinished, n_best)
            results[row] = SearchResult(best_of_row, certified)

        # The cache follows the open hypotheses; stopped rows leave once they are many.
        running = [i for i, row in enumerate(rows) if row not in results]
        if not running:
            break
        source = index * beam + parent  # row of the cache that each hypothesis extends: [R, beam]
        if len(rows) - len(running) >= MIN_DROP_SHARE * len(rows):
            rows = [rows[i] for i in running]
            log_p, tokens, source = log_p[running], tokens[running], source[running]
            kept = torch.tensor(running, device=device)
            cache = select_rows(cache, source.flatten().to(device), memory_rows=kept)
        elif beam > 1:
            reorder_rows(filled, source.flatten().to(device))

    return [results[row] for row in range(batch)]


def _best_candidates(
    log_p: Tensor, logits: Tensor, forbidden: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of the open hypotheses by one token, best first.

    log_p [R, beam]: of the open hypotheses. logits [R beam, V] of their next tokens. Returns log p
    in float64, the hypothesis that is extended and the token, on the CPU: 3 x [R, C]. C is
    2 beam + 1: at most `beam` candidates end, `beam` stay open, and `SearchMargin` needs one more.
    """
    n_rows, beam = log_p.shape
    logits = at_least_float32(logits)
    for token in forbidden:
        logits[:, token] = -torch.inf
    count = min(2 * beam + 1, logits.shape[-1])
    next_log_p, tokens = logits.log_softmax(-1).topk(count, dim=-1)  # 2 x [R beam, count]
    joint = log_p.unsqueeze(2) + next_log_p.cpu().double().view(n_rows, beam, count)
    best, index = joint.flatten(1).topk(min(2 * beam + 1, beam * count), dim=1)  # 2 x [R, C]
    return best, index // count, tokens.cpu().view(n_rows, -1).gather(1, index)
