"""Beam search over a model with a cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from triptych.core.attention.context import KVCache
from triptych.core.heads import at_least_float32
from triptych.core.models.base import (
    CHECK_INTERVAL,
    MIN_DROP_SHARE,
    AutoregressiveModel,
    reorder_rows,
    select_rows,
)
from triptych.decoding.beams import Beams, SearchSettings
from triptych.decoding.hypotheses import LengthPenalty, SearchResult


@torch.no_grad()
def beam_search(
    model: AutoregressiveModel,
    cache: KVCache,
    *,
    beam: int,
    start: int,
    end: int,
    max_lengths: Sequence[int],
    penalty: LengthPenalty | None = None,
    n_best: int = 1,
    forbidden: tuple[int, ...] = (),
) -> list[SearchResult]:
    """The n best outputs of each row, n from 1 to beam.

    cache: of the model for B rows, without any position. The search expands it to B x beam rows;
    the tensors of the encoder's memory, whose names begin with memory_, keep B rows. max_lengths:
    limit of each of the B rows in tokens, its end included. penalty: default gnmt:0.6. forbidden:
    tokens never produced (padding, start).

    log p only falls and the penalty is largest at the length limit, so the best open log p over
    that penalty bounds every later score: a row stops when its n best are above the bound (Huang
    et al. 2017, "When to finish?"). If too few have finished at the length limit, the best open
    ones follow, marked as unfinished. A beam of 1 is greedy search: its first end is final. Every
    decision is made within a row, so that a result does not depend on the batch.

    `Beams` makes the decisions on the device. A GPU is waited for every CHECK_INTERVAL steps.
    """
    device = next(iter(cache[0].values())).device
    batch, longest = len(max_lengths), max(max_lengths)
    settings = SearchSettings.build(
        penalty or LengthPenalty(), longest, device, beam=beam, n_best=n_best, end=end
    )
    beams = Beams.start(settings, max_lengths)
    results: dict[int, SearchResult] = {}
    positions = torch.arange(longest, device=device)
    last = torch.full((batch * beam, 1), start, device=device)  # [R beam, 1]
    cache = select_rows(cache, torch.arange(batch, device=device).repeat_interleave(beam))

    for length in range(1, longest + 1):
        filled = model.cache_view(cache, length)
        logits = model.step(last, positions[length - 1 : length], filled)[:, 0]  # [R beam, V]
        candidates = _best_candidates(beams.log_p, logits, forbidden)
        parent, token = beams.extend(settings, length, *candidates)  # 2 x [R, beam]
        if length == longest:
            break

        # The cache follows the open hypotheses; stopped rows leave once they are many.
        rows = torch.arange(len(parent), device=device)
        source = rows.unsqueeze(1) * beam + parent  # row of the cache that each one extends
        kept = None
        if device.type == "cpu" or length % CHECK_INTERVAL == 0:
            kept = _rows_to_keep(beams.running.tolist())
        if kept == []:
            break
        if kept is not None:
            stopped = (~beams.running).nonzero().squeeze(1)
            results |= beams.select(stopped).results(settings)
            rows = torch.tensor(kept, device=device)
            beams, source, token = beams.select(rows), source[rows], token[rows]
            cache = select_rows(cache, source.flatten(), memory_rows=rows)
        elif beam > 1:
            reorder_rows(filled, source.flatten())
        last = token.reshape(-1, 1)

    results |= beams.results(settings)
    return [results[row] for row in range(batch)]


def _rows_to_keep(running: Sequence[bool]) -> list[int] | None:
    """The rows that are still searched, if enough others stopped to copy the cache; else None."""
    kept = [row for row, runs in enumerate(running) if runs]
    n_stopped = len(running) - len(kept)
    return kept if not kept or n_stopped >= MIN_DROP_SHARE * len(running) else None


def _best_candidates(
    log_p: Tensor, logits: Tensor, forbidden: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of the open hypotheses by one token, best first.

    log_p [R, beam]: of the open hypotheses. logits [R beam, V] of their next tokens. Returns log p
    in the dtype of log_p, the hypothesis that is extended and the token: 3 x [R, C]. C is
    2 beam + 1: at most `beam` candidates end, `beam` stay open, and the margin needs one more.
    """
    n_rows, beam = log_p.shape
    logits = at_least_float32(logits)
    for token in forbidden:
        logits[:, token] = -torch.inf
    count = min(2 * beam + 1, logits.shape[-1])
    next_log_p, tokens = logits.log_softmax(-1).topk(count, dim=-1)  # 2 x [R beam, count]
    joint = log_p.unsqueeze(2) + next_log_p.to(log_p.dtype).view(n_rows, beam, count)
    best, index = joint.flatten(1).topk(min(2 * beam + 1, beam * count), dim=1)  # 2 x [R, C]
    return best, index // count, tokens.view(n_rows, -1).gather(1, index)
