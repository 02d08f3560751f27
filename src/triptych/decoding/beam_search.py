"""Beam search over a model with a cache."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from triptych.core.heads import at_least_float32
from triptych.core.models.base import AutoregressiveModel
from triptych.core.state import DecodingState, tensors_of
from triptych.decoding.beams import Beams, LengthPenalty, SearchResult, SearchSettings
from triptych.decoding.constraints import RequiredPhrases
from triptych.decoding.generate import CHECK_INTERVAL, MIN_DROP_SHARE
from triptych.decoding.sampling import LogitsConstraint


@torch.no_grad()
def beam_search(
    model: AutoregressiveModel,
    state: DecodingState[Any],
    *,
    beam: int,
    start: int,
    end: int,
    max_lengths: Sequence[int],
    penalty: LengthPenalty | None = None,
    n_best: int = 1,
    forbidden: tuple[int, ...] = (),
    constraint: LogitsConstraint | None = None,
    required: RequiredPhrases | None = None,
) -> list[SearchResult]:
    """The n best outputs of each row, n from 1 to beam.

    state: of the model for B rows, without any position; the search expands all but its memory to
    B x beam rows. max_lengths: limit of each of the B rows in tokens, its end included. penalty:
    default gnmt:0.6. forbidden: tokens that have no probability (padding, start). constraint: on
    the tokens of a hypothesis; required: phrases that it must contain, with a beam for each number
    of tokens that are lacking. Neither changes the log p of a hypothesis. The result of a row has
    fewer than n hypotheses, or none, where no more were found.

    log p only falls and the penalty is largest at the length limit, so the best open log p over
    that penalty bounds every later score: a row stops when its n best are above the bound (Huang
    et al. 2017, "When to finish?"). If too few have finished at the length limit, the best open
    ones follow, marked as unfinished. A beam of 1 is greedy search: its first end is final.

    `Beams` makes the decisions on the device, within a row, so that a result does not depend on
    the batch. A GPU is waited for every CHECK_INTERVAL steps.
    """
    device = tensors_of(state)[0].device
    batch, longest = len(max_lengths), max(max_lengths)
    dtype = torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
    # Each length by itself: the vectorised power rounds differently.
    divisors = list(map(penalty or LengthPenalty(), torch.arange(longest + 1)))
    n_banks = 1 if required is None else required.n_banks
    divisor = torch.stack(divisors).to(device, dtype)  # [L + 1]
    settings = SearchSettings(beam, n_best, end, divisor, n_banks)
    width = settings.width
    beams = Beams.start(settings, max_lengths)
    results: dict[int, SearchResult] = {}
    positions = torch.arange(longest, device=device)
    last = torch.full((batch * width, 1), start, device=device)  # [R W, 1]
    history = last[:, :0]  # tokens of the open hypotheses [R W, t], empty without a constraint
    state = state.select(torch.arange(batch, device=device).repeat_interleave(width))

    for length in range(1, longest + 1):
        filled = model.state_view(state, length)
        logits = model.step(last, positions[length - 1 : length], filled)[:, 0]  # [R W, V]
        logits = at_least_float32(logits)
        for unwanted in forbidden:
            logits[:, unwanted] = -torch.inf
        next_log_p = logits.log_softmax(-1)  # [R W, V]
        if constraint is not None:
            next_log_p = next_log_p.masked_fill(constraint(history), -torch.inf)
        if required is None:
            candidates = _best_candidates(beams.log_p, next_log_p)  # 3 x [R, 1, C]
        else:
            after = required(history)
            candidates = _best_of_banks(beams.log_p, next_log_p, settings, required.tokens, after)
        parent, token = beams.extend(settings, length, *candidates)  # 2 x [R, W]
        if length == longest:
            break

        # The state follows the open hypotheses; stopped rows leave once they are many.
        rows = torch.arange(len(parent), device=device)
        source = rows.unsqueeze(1) * width + parent  # row of the state that each one extends
        kept = None
        if device.type == "cpu" or length % CHECK_INTERVAL == 0:
            running = beams.running.tolist()
            kept = [row for row, runs in enumerate(running) if runs]
            if kept and len(running) - len(kept) < MIN_DROP_SHARE * len(running):
                kept = None  # copying the state would take longer
        if kept == []:
            break
        if kept is not None:
            stopped = (~beams.running).nonzero().squeeze(1)
            results |= beams.select(stopped).results(settings)
            rows = torch.tensor(kept, device=device)
            beams, source, token = beams.select(rows), source[rows], token[rows]
            state = state.select(source.flatten(), memory_rows=rows)
        elif width > 1:
            filled.reorder(source.flatten())
        last = token.reshape(-1, 1)
        if constraint is not None or required is not None:
            history = torch.cat([history.index_select(0, source.flatten()), last], dim=1)

    results |= beams.results(settings)
    return [results[row] for row in range(batch)]


def _best_candidates(log_p: Tensor, next_log_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of the open hypotheses by one token, best first.

    log_p [R, beam]: of the open hypotheses. next_log_p [R beam, V]: of their next tokens. Returns
    log p in the dtype of log_p, the hypothesis that is extended and the token: 3 x [R, 1, C]. C is
    2 beam + 1: at most `beam` candidates end, `beam` stay open, and the margin needs one more.
    """
    n_rows, beam = log_p.shape
    count = min(2 * beam + 1, next_log_p.shape[-1])
    next_log_p, tokens = next_log_p.topk(count, dim=-1)  # 2 x [R beam, count]
    joint = log_p.unsqueeze(2) + next_log_p.to(log_p.dtype).view(n_rows, beam, count)
    best, index = joint.flatten(1).topk(min(2 * beam + 1, beam * count), dim=1)  # 2 x [R, C]
    token = tokens.view(n_rows, -1).gather(1, index)
    return best.unsqueeze(1), (index // count).unsqueeze(1), token.unsqueeze(1)


def _best_of_banks(
    log_p: Tensor, next_log_p: Tensor, settings: SearchSettings, tokens: Tensor, after: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `_best_candidates`, for each bank: 3 x [R, banks, C].

    log_p [R, W], next_log_p [R W, V]. tokens [S] and after [R W, S + 1]: the bank of an extension
    by each of these tokens, and last of one by any other. Only the first bank may end.
    """
    n_rows, width = log_p.shape
    best = 2 * settings.beam + 1
    rest = next_log_p.index_fill(1, tokens, -torch.inf)
    rest, other = rest.topk(min(best, rest.shape[1]), dim=1)  # 2 x [R W, n]
    n_tokens, count = len(tokens), len(tokens) + rest.shape[1]
    extended = torch.cat([next_log_p[:, tokens], rest], dim=1)  # [R W, count]
    token = torch.cat([tokens.expand(len(other), -1), other], dim=1)  # [R W, count]
    bank = torch.cat([after[:, :n_tokens], after[:, n_tokens:].expand_as(other)], dim=1)
    extended = extended.masked_fill((token == settings.end) & (bank > 0), -torch.inf)

    joint = log_p.unsqueeze(2) + extended.to(log_p.dtype).view(n_rows, width, count)
    banks = torch.arange(settings.banks, device=log_p.device).view(1, -1, 1)
    elsewhere = bank.view(n_rows, 1, -1) != banks  # [R, banks, W count]
    of_banks = joint.flatten(1).unsqueeze(1).masked_fill(elsewhere, -torch.inf)
    best_of_bank, index = of_banks.topk(min(best, width * count), dim=2)  # 2 x [R, banks, C]
    every = token.view(n_rows, 1, -1).expand_as(of_banks)
    return best_of_bank, index // count, every.gather(2, index)
