"""Honest scores: sums over a whole split, divided once at the end; validation runs here too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from lightning_fabric.utilities import move_data_to_device
from torch import Tensor

if TYPE_CHECKING:
    from triptych.training.task import Task

Totals = dict[str, Tensor]
"""Sums so far, float64 scalars on the device."""


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No gradients and no autocast: what is reported is computed in the weights' own precision."""
    with torch.no_grad(), torch.autocast(device_type=device.type, enabled=False):
        yield


@contextmanager
def scoring(task: Task) -> Iterator[None]:
    """Eval mode (no dropout) and full precision; puts the former mode of every module back."""
    modes = {module: module.training for module in task.modules()}
    task.eval()
    try:
        with full_precision(task.device):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def add_scores(task: Task, batch: Any, totals: Totals) -> None:
    """Add the batch's sums to totals; the caller holds `full_precision` and eval mode."""
    for name, value in task.score(batch).items():
        # Sums stay on the device: reading them every batch would make a GPU wait.
        amount = torch.as_tensor(value).detach()
        # Apple's GPU has no float64; there the CPU adds up.
        amount = amount.to("cpu" if amount.device.type == "mps" else task.device).double()
        totals[name] = totals[name] + amount if name in totals else amount


def read_totals(totals: Totals) -> dict[str, float]:
    """Return the sums as Python numbers (one wait for the device)."""
    return {name: float(value) for name, value in totals.items()}


def evaluate(
    task: Task, batches: Iterable[Any], progress: Callable[[int, int], None] | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Score all batches as validation does and return (metrics, totals).

    batches: for example `loader.fixed_batches(...)`; None in it is skipped.
    progress: called with (batches done, batches in all or 0 where unknown).
    The result does not depend on how items are cut into batches. Sampling and decoding are not
    done here; see each domain's `inference`.
    """
    totals: Totals = {}
    length = len(batches) if isinstance(batches, Sized) else 0
    with scoring(task):
        for done, batch in enumerate(batches, start=1):
            if batch is not None:
                add_scores(task, move_data_to_device(batch, task.device), totals)
            if progress is not None:
                progress(done, length)
    numbers = read_totals(totals)
    return task.metrics(numbers), numbers


def is_finite(value: float) -> bool:
    """Tell whether a figure can be reported."""
    return math.isfinite(value)
