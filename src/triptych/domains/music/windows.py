"""Scoring with other windows than those of the training, and by position in the window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from triptych.domains.music.data import Batch
from triptych.domains.music.task import MusicTask
from triptych.errors import UserError
from triptych.training.metric_sums import in_double


def with_windows(task: MusicTask, *, length: int | None, context: int | None) -> MusicTask:
    """The same model with windows of `length` tokens, `context` of them before what is scored.

    length None: the model's own; context None: the model's own, grown or shrunk with the length.
    Raises UserError where the windows are impossible or the model cannot serve them.
    """
    data = task.config.data
    length = data.length if length is None else length
    if context is None:
        unit = data.source.representation.alignment
        context = data.context * max(length, 0) // data.length // unit * unit
    if (length, context) == (data.length, data.context):
        return task
    why = f"the model cannot be scored with windows of {length:,} tokens"
    weights = task.state_dict()
    try:
        other = MusicTask(replace(task.config, data=replace(data, length=length, context=context)))
    except ValueError as error:
        raise UserError(f"{why}: {error}") from error
    for name, weight in other.state_dict().items():
        if name not in weights or weights[name].shape != weight.shape:
            found = tuple(weights[name].shape) if name in weights else "no numbers"
            raise UserError(
                f"{why}: its {name} has {found} for windows of {data.length:,}, and would need "
                f"{tuple(weight.shape)}"
            )
    first = next(task.parameters())
    other.to(device=first.device, dtype=first.dtype).load_state_dict(weights)
    return other.eval()


class PositionSums:
    """Nats and scored tokens of each position in the window, added up batch by batch."""

    def __init__(self, task: MusicTask) -> None:
        self.task = task
        size = task.config.data.length
        self.nats = torch.zeros(size, dtype=torch.float64)
        self.tokens = torch.zeros(size, dtype=torch.int64)

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """What the task's `score` gives; each position's part is kept here."""
        nats = self.task.nll(batch)  # [B, L]
        self.nats[: nats.shape[1]] += in_double(nats).sum(0).cpu()
        self.tokens[: nats.shape[1]] += batch.scored.sum(0).cpu()
        return self.task.sums(batch, nats)

    def nats_per_token(self, first: int, stop: int) -> float | None:
        """Mean over positions first..stop-1 of the window; None where none was scored."""
        tokens = int(self.tokens[first:stop].sum())
        return float(self.nats[first:stop].sum()) / tokens if tokens else None

    def metrics(self, trained_length: int) -> dict[str, float]:
        """Nats per token of the positions that training knew and of those beyond them.

        Nothing where the windows are no longer than in training, or no token lies beyond.
        """
        length = len(self.nats)
        parts = {
            "nats_per_token_within": self.nats_per_token(0, trained_length),
            "nats_per_token_beyond": self.nats_per_token(trained_length, length),
        }
        if length <= trained_length or None in parts.values():
            return {}
        return {name: value for name, value in parts.items() if value is not None}

    def buckets(self, size: int) -> list[dict[str, Any]]:
        """Runs of `size` positions with their scored tokens and mean; empty ones are left out.

        first, last: positions in the window, from 0.
        """
        length = len(self.nats)
        found = []
        for first in range(0, length, size):
            stop = min(first + size, length)
            mean = self.nats_per_token(first, stop)
            if mean is not None:
                tokens = int(self.tokens[first:stop].sum())
                found.append(
                    {"first": first, "last": stop - 1, "tokens": tokens, "nats_per_token": mean}
                )
        return found
