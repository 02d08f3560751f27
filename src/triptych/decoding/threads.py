"""Number of CPU threads for decoding steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

SMALL_STEP = 2**25
"""Products of a weight and an input in a step, below which one thread is as fast as several."""


@contextmanager
def threads_of_steps(model: nn.Module, rows: int) -> Iterator[None]:
    """Use one CPU thread for steps of `rows` positions, if they are small; then as many as before.

    The threads of a small step wait for each other longer than they compute, and much longer where
    other programs use the processor.
    """
    parameters = list(model.parameters())
    before = torch.get_num_threads()
    on_cpu = all(parameter.device.type == "cpu" for parameter in parameters)
    small = on_cpu and rows * sum(p.numel() for p in parameters) <= SMALL_STEP
    if not small or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
