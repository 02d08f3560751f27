"""Sampling a whole sequence from a decoder-only model, one cached step at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from triptych.core.sequence import SequenceModel
from triptych.decoding.pick import Sampling, draw

Forbid = Callable[[Tensor], Tensor]
"""Which categories may not come next: values so far int64 [B, t] -> bool [B, V]."""
Progress = Callable[[int, int], None]
"""Called after each position with (positions done, positions in all)."""


@torch.no_grad()
def sample(
    model: SequenceModel,
    *,
    batch: int,
    length: int,
    sampling: Sampling | None = None,
    generator: torch.Generator | None = None,
    prefix: Tensor | None = None,
    previous: Tensor | None = None,
    condition: Tensor | None = None,
    end: int | None = None,
    forbid: Forbid | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Continue `prefix` to `length` values a row: int64 [B, length] or [B, length, C].

    prefix: int64 [B, P] that the result begins with; previous [B] and condition [B, D] as in
    `SequenceModel`. A row that has drawn `end` stops there: the rest of it is filled with `end`,
    and the work ends when all rows have stopped. The generator lies on the model's device.
    Raises ValueError where the prefix is longer than the length.
    """
    sampling = sampling or Sampling()
    device = model.start.device
    prefix = model.no_values(batch) if prefix is None else prefix
    n_prefix = prefix.shape[1]
    if n_prefix > length:
        raise ValueError(f"a prefix of {n_prefix} values does not fit in a length of {length}")
    values = prefix.new_zeros(batch, length, *prefix.shape[2:])  # [B, L]
    values[:, :n_prefix] = prefix
    done = torch.zeros(batch, dtype=torch.bool, device=device)
    if end is not None:
        done = (prefix == end).any(1)
    was_training = model.training
    model.eval()
    try:
        state = model.empty_state(batch, length)
        positions = torch.arange(length, device=device)  # [L]
        for t in range(n_prefix, length):
            if t == n_prefix:
                parameters = model.prefill(prefix, state, previous, condition)
            else:
                parameters = model.step(values[:, t - 1], positions[t], state, condition)
            if forbid is not None:
                parameters = parameters.masked_fill(forbid(values[:, :t]), -torch.inf)
            value = draw(model.head, parameters, sampling, generator)  # [B] or [B, C]
            if end is not None:
                value = torch.where(done, end, value)
                done = done | (value == end)
            values[:, t] = value
            if progress is not None:
                progress(t + 1 - n_prefix, length - n_prefix)
            # Asking costs a wait for the device, so there not at every step.
            if end is not None and (device.type == "cpu" or t % 16 == 0) and bool(done.all()):
                values[:, t + 1 :] = end
                break
        return values
    finally:
        model.train(was_training)
