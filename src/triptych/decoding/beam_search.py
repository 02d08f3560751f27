"""Beam search: the steps, and the state that they read and move."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from triptych.core.heads import at_least_float32
from triptych.core.transformer import State
from triptych.decoding.hypotheses import Found, LengthPenalty, Rows, outcomes

Step = Callable[[Tensor, Tensor, State], Tensor]
"""(token int64 [N], position int64 [], state) -> logits of the next token [N, V]."""
Narrow = Callable[[State, int], State]
"""(state, positions) -> views of what the state holds once so many positions are in it."""
LEAVING = 0.25
"""Share of the rows that must have stopped before they leave the batch. With 64 captions in one,
rows that never leave took 1.4 times as long (beam 4) and 1.7 (greedy); 1/8 to 1/2 made no
difference, and leaving at once, which copies the state most often, took 1.1 times as long."""


@torch.no_grad()
def beam_search(
    step: Step,
    state: State,
    *,
    beam: int,
    start: int,
    end: int,
    max_lengths: Tensor,
    penalty: LengthPenalty | None = None,
    n_best: int = 1,
    forbidden: tuple[int, ...] = (),
    narrow: Narrow | None = None,
) -> list[Found]:
    """The n best outputs of each row.

    state: of B rows, empty but for the memory, whose tensors are named memory_... and keep B rows:
    `step` gets B x beam tokens and as many rows of everything else. max_lengths: int64 [B], tokens
    that a row may have, its end included. forbidden: tokens never produced (padding, start).
    narrow: lets each step see, and the search move, only the part of the state that is filled.

    Every decision is a row's own, so its output does not depend on the rest of the batch. A row
    stops when no open hypothesis can still beat its n-th best finished one: log p only falls, and
    the penalty is largest at the row's longest length, which bounds the score from above (Huang
    et al. 2017, "When to finish?"). Where too few have finished at the longest length, the best
    open ones fill up, marked as unfinished. A beam of 1 is greedy search: its first end is final.
    Rows that have stopped leave the batch, many at a time (`LEAVING`).
    Raises ValueError for a beam below 1, or fewer hypotheses kept than asked for.
    """
    if beam < 1 or not 1 <= n_best <= beam:
        raise ValueError(f"beam must be at least 1 and n_best within it, got {beam} and {n_best}")
    penalty = penalty or LengthPenalty()
    batch, device = max_lengths.shape[0], max_lengths.device
    longest = int(max_lengths.max())
    state = expand_rows(state, beam)
    rows = Rows.first(max_lengths.cpu(), beam, n_best, penalty)
    token = torch.full((batch * beam,), start, device=device)
    positions = torch.arange(longest, device=device)
    stopped = torch.zeros(batch, dtype=torch.bool)
    words: list[Tensor] = []  # chosen in each step, for all rows of the call: int64 [B, beam]
    parents: list[Tensor] = []  # the open hypothesis that each of them extends
    left: list[tuple[int, Rows]] = []  # number of steps, and the rows that stopped then

    for t in range(longest):
        filled = state if narrow is None else narrow(state, t + 1)
        value, word = _best_words(step(token, positions[t], filled), 2 * beam + 1, forbidden)
        parent, word = rows.advance(value, word, t + 1, end, penalty)  # [B, beam]
        words.append(word.new_zeros(batch, beam).index_copy_(0, rows.place, word))
        parents.append(word.new_zeros(batch, beam).index_copy_(0, rows.place, parent))

        stops = rows.stops(t + 1, greedy=beam == 1)
        left.append((t + 1, rows.select((stops & ~stopped).nonzero().flatten())))
        stopped = stopped | stops
        n_stopped, n_rows = int(stopped.sum()), len(stopped)
        if n_stopped == n_rows:
            break

        source = torch.arange(n_rows).unsqueeze(1) * beam + parent  # [B, beam]
        if n_stopped >= LEAVING * n_rows:
            going = (~stopped).nonzero().flatten()
            source, word, stopped = source[going], word[going], stopped[going]
            rows = rows.select(going)
            state = select_rows(state, source.flatten().to(device), going.to(device))
        elif beam > 1:
            reorder_rows(filled, source.flatten().to(device))
        token = word.flatten().to(device)

    found = dict(outcomes(left, words, parents, n_best, penalty))
    return [found[place] for place in range(batch)]


def _best_words(logits: Tensor, count: int, forbidden: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The likeliest words of each row, their log p in float64, both on the CPU: 2 x [N, count]."""
    logits = at_least_float32(logits)
    for never in forbidden:
        logits[:, never] = -torch.inf
    value, word = logits.log_softmax(-1).topk(min(count, logits.shape[-1]), dim=-1)
    return value.cpu().double(), word.cpu()


def expand_rows(state: State, times: int) -> State:
    """Each row `times` times in a row, as new storage: B -> B x times.

    What belongs to the memory is left alone: all hypotheses of a sentence read the same one.
    """
    return [
        {
            name: tensor if _of_memory(name) else tensor.repeat_interleave(times, dim=0)
            for name, tensor in layer.items()
        }
        for layer in state
    ]


def reorder_rows(state: State, rows: Tensor) -> None:
    """Row i becomes what row rows[i] was, in place; rows int64 [B], the memory left alone."""
    for layer in state:
        for name, tensor in layer.items():
            if not _of_memory(name):
                tensor.copy_(tensor.index_select(0, rows))


def select_rows(state: State, rows: Tensor, sentences: Tensor) -> State:
    """A smaller state, as new storage: these rows, and of the memory these sentences."""
    return [
        {
            name: tensor.index_select(0, sentences if _of_memory(name) else rows)
            for name, tensor in layer.items()
        }
        for layer in state
    ]


def _of_memory(name: str) -> bool:
    return name.startswith("memory_")
