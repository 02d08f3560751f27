"""Beam search with a named length penalty, an exact stop and the n best hypotheses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triptych.core.heads import at_least_float32
from triptych.core.transformer import State

Step = Callable[[Tensor, Tensor, State], Tensor]
"""(token int64 [N], position int64 [], state) -> logits of the next token [N, V]."""
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
        if self.alpha < 0:
            raise ValueError(f"alpha must be 0 or more, got {self.alpha}")

    def __call__(self, length: Tensor) -> Tensor:
        """Divisor of log p at these lengths; never falls as the length grows."""
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


def expand_rows(state: State, times: int) -> State:
    """Each row `times` times in a row, as new storage: B -> B x times."""
    return [
        {name: tensor.repeat_interleave(times, dim=0) for name, tensor in layer.items()}
        for layer in state
    ]


def reorder_rows(state: State, rows: Tensor) -> None:
    """Row i becomes what row rows[i] was, in place; rows int64 [B].

    What belongs to the memory is left alone: rows only ever change places within one sentence,
    and its hypotheses read the same memory.
    """
    for layer in state:
        for name, tensor in layer.items():
            if not name.startswith("memory_"):
                tensor.copy_(tensor.index_select(0, rows))


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
) -> list[list[Hypothesis]]:
    """The n best outputs of each row, best first.

    state: of B rows, empty but for the memory. max_lengths: int64 [B], tokens that a row may
    have, its end included. forbidden: tokens never produced (padding, start).

    Every decision is a row's own, so its output does not depend on the rest of the batch. A row
    stops when no open hypothesis can still beat its n-th best finished one: log p only falls, and
    the penalty is largest at the row's longest length, which bounds the score from above (Huang
    et al. 2017, "When to finish?"). Where too few have finished at the longest length, the best
    open ones fill up, marked as unfinished. A beam of 1 is greedy search: its first end is final.
    Raises ValueError for a beam below 1, or fewer hypotheses kept than asked for.
    """
    if beam < 1 or not 1 <= n_best <= beam:
        raise ValueError(f"beam must be at least 1 and n_best within it, got {beam} and {n_best}")
    penalty = penalty or LengthPenalty()
    batch, device = max_lengths.shape[0], max_lengths.device
    longest = int(max_lengths.max())
    state = expand_rows(state, beam)
    first_row = torch.arange(batch, device=device).unsqueeze(1) * beam  # [B, 1]
    infinite = torch.inf
    # Open hypotheses: at first one a row; finished ones: the `beam` best, at first none.
    log_p = torch.full((batch, beam), -infinite, dtype=torch.float64, device=device)
    log_p[:, 0] = 0.0
    tokens = torch.full((batch, beam, longest), end, device=device)  # [B, beam, T]
    done_score = torch.full((batch, beam), -infinite, dtype=torch.float64, device=device)
    done_log_p = done_score.clone()
    done_tokens = tokens.clone()
    done_length = torch.zeros(batch, beam, dtype=torch.int64, device=device)
    stopped = torch.zeros(batch, dtype=torch.bool, device=device)
    open_length = torch.zeros(batch, dtype=torch.int64, device=device)  # when the row stopped
    bound = penalty(max_lengths)  # [B]
    token = torch.full((batch * beam,), start, device=device)
    positions = torch.arange(longest, device=device)
    rank = torch.arange(2 * beam, device=device)

    for t in range(longest):
        logits = at_least_float32(step(token, positions[t], state))  # [B beam, V]
        for never in forbidden:
            logits[:, never] = -infinite
        next_log_p = logits.log_softmax(-1).double().view(batch, beam, -1)  # [B, beam, V]
        vocabulary = next_log_p.shape[-1]
        joint = (log_p.unsqueeze(-1) + next_log_p).flatten(1)  # [B, beam V]
        best, index = joint.topk(min(2 * beam, joint.shape[1]), dim=1)  # [B, 2 beam]
        source, word = index // vocabulary, index % vocabulary
        history = tokens.gather(1, source.unsqueeze(-1).expand(-1, -1, longest))
        history[:, :, t] = word  # [B, 2 beam, T]

        # Among the best `beam` candidates those that end are finished (so 1 is greedy search).
        ends = word == end
        length = torch.full_like(done_length[:, :1], t + 1)
        finishes = ends & (rank[: ends.shape[1]] < beam) & ~stopped.unsqueeze(1)
        score = torch.where(finishes, best / penalty(length), -infinite)
        pool_score = torch.cat([done_score, score], dim=1)
        done_score, keep = pool_score.topk(beam, dim=1)
        done_log_p = torch.cat([done_log_p, best], dim=1).gather(1, keep)
        done_length = torch.cat([done_length, length.expand_as(word)], dim=1).gather(1, keep)
        wide = keep.unsqueeze(-1).expand(-1, -1, longest)
        done_tokens = torch.cat([done_tokens, history], dim=1).gather(1, wide)

        # The best `beam` candidates that do not end stay open; a stopped row keeps what it had.
        going = best.masked_fill(ends, -infinite)
        new_log_p, keep = going.topk(beam, dim=1)
        new_source, new_word = source.gather(1, keep), word.gather(1, keep)
        new_tokens = history.gather(1, keep.unsqueeze(-1).expand(-1, -1, longest))
        frozen = stopped.unsqueeze(1)
        log_p = torch.where(frozen, log_p, new_log_p)
        tokens = torch.where(frozen.unsqueeze(-1), tokens, new_tokens)
        open_length = torch.where(stopped, open_length, t + 1)

        stopped = stopped | (max_lengths <= t + 1)
        stopped = stopped | (log_p[:, 0] / bound <= done_score[:, n_best - 1])
        if beam == 1:  # greedy: the first end is final, though a longer output may score better
            stopped = stopped | (done_score[:, 0] > -infinite)
        if bool(stopped.all()):
            break
        token = new_word.flatten()
        if beam > 1:
            reorder_rows(state, (first_row + new_source).flatten())

    open_score = log_p / penalty(open_length).unsqueeze(1)
    return [
        _row_results(
            n_best,
            _finished(done_tokens[b], done_length[b], done_score[b], done_log_p[b]),
            _open(tokens[b], int(open_length[b]), open_score[b], log_p[b]),
        )
        for b in range(batch)
    ]


def _row_results(
    n_best: int, finished: list[Hypothesis], still_open: list[Hypothesis]
) -> list[Hypothesis]:
    """The finished hypotheses, best first, filled up with open ones where they are too few."""
    return (finished + still_open)[:n_best]


def _finished(tokens: Tensor, length: Tensor, score: Tensor, log_p: Tensor) -> list[Hypothesis]:
    return [
        Hypothesis(words[: n - 1], value, log, finished=True)
        for words, n, value, log in zip(
            tokens.tolist(), length.tolist(), score.tolist(), log_p.tolist(), strict=True
        )
        if value > -torch.inf
    ]


def _open(tokens: Tensor, length: int, score: Tensor, log_p: Tensor) -> list[Hypothesis]:
    return [
        Hypothesis(words[:length], value, log, finished=False)
        for words, value, log in zip(tokens.tolist(), score.tolist(), log_p.tolist(), strict=True)
        if value > -torch.inf
    ]
