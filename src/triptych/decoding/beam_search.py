"""Beam search over a model with a cache."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.core.attention.base import KVCache
from triptych.core.heads import at_least_float32
from triptych.core.models.base import (
    MIN_DROP_SHARE,
    AutoregressiveModel,
    expand_rows,
    reorder_rows,
    select_rows,
)
from triptych.decoding.hypotheses import BeamState, LengthPenalty, SearchResult, search_results


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
    """The n best outputs of each row.

    cache: of the model for B rows, without any position. The search expands it to B x beam rows;
    the tensors of the encoder's memory, whose names begin with memory_, keep B rows. max_lengths:
    int64 [B], limit of each row in tokens, its end included. penalty: default gnmt:0.6. forbidden:
    tokens never produced (padding, start).

    A row stops when no open hypothesis can enter its n best any more (`BeamState.stopped`). If
    too few have finished at the length limit, the best open ones follow, marked as unfinished. A
    beam of 1 is greedy search: its first end is final. Stopped rows are dropped from the batch.
    Raises ValueError for a beam below 1 and for an n_best outside 1 to beam.
    """
    if beam < 1 or not 1 <= n_best <= beam:
        raise ValueError(f"beam must be at least 1 and n_best from 1 to beam, got {beam}, {n_best}")
    penalty = penalty or LengthPenalty()
    batch, device = max_lengths.shape[0], max_lengths.device
    longest = int(max_lengths.max())
    cache = expand_rows(cache, beam)
    beams = BeamState.initial(max_lengths.cpu(), beam, n_best, penalty)
    token = torch.full((batch * beam,), start, device=device)
    positions = torch.arange(longest, device=device)
    stopped = torch.zeros(batch, dtype=torch.bool)
    tokens: list[Tensor] = []  # of each step, for all rows of the call: int64 [B, beam]
    parents: list[Tensor] = []  # the open hypothesis that each token extends
    ended: list[tuple[int, BeamState]] = []  # number of steps, and the rows that stopped then

    for t in range(longest):
        filled = model.cache_view(cache, t + 1)
        logits = model.step(token, positions[t], filled)  # [N, V]
        log_p, token = _most_probable(logits, 2 * beam + 1, forbidden)  # 2 x [N, C]
        parent, token = beams.advance(log_p, token, t + 1, end, penalty)  # 2 x [B, beam]
        tokens.append(token.new_zeros(batch, beam).index_copy_(0, beams.index, token))
        parents.append(token.new_zeros(batch, beam).index_copy_(0, beams.index, parent))

        stops = beams.stopped(t + 1, greedy=beam == 1)
        ended.append((t + 1, beams.select((stops & ~stopped).nonzero().flatten())))
        stopped = stopped | stops
        n_stopped, n_rows = int(stopped.sum()), len(stopped)
        if n_stopped == n_rows:
            break

        source = torch.arange(n_rows).unsqueeze(1) * beam + parent  # [B, beam]
        if n_stopped >= MIN_DROP_SHARE * n_rows:
            running = (~stopped).nonzero().flatten()
            source, token, stopped = source[running], token[running], stopped[running]
            beams = beams.select(running)
            cache = select_rows(cache, source.flatten().to(device), running.to(device))
        elif beam > 1:
            reorder_rows(filled, source.flatten().to(device))
        token = token.flatten().to(device)

    results = dict(search_results(ended, tokens, parents, n_best, penalty))
    return [results[row] for row in range(batch)]


def _most_probable(logits: Tensor, count: int, forbidden: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """log p in float64 and ids of the most probable tokens, on the CPU: 2 x [N, count]."""
    logits = at_least_float32(logits)
    for token in forbidden:
        logits[:, token] = -torch.inf
    log_p, token_ids = logits.log_softmax(-1).topk(min(count, logits.shape[-1]), dim=-1)
    return log_p.cpu().double(), token_ids.cpu()
