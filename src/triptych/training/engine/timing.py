"""Time of a training step on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from triptych.training.engine.devices import choose_precision, uses_cuda
from triptych.training.engine.module import TrainingModule


class StepTime(NamedTuple):
    """Median time of an update, in seconds."""

    seconds: float
    processor_seconds: float
    """Time of all threads on processors; below `seconds` where other work takes the processors, or
    where a GPU computes."""


def time_steps(
    task: TrainingModule, loader: Any, trainer: dict[str, Any], *, steps: int
) -> StepTime:
    """Return the time of an update: forward and backward pass, and the optimiser.

    The parameters are updated. trainer: arguments of the run's Trainer, for device and precision.
    One update more is made first and not counted.
    """
    device = torch.device("cuda" if uses_cuda(trainer) else "cpu")
    mixed = choose_precision(trainer) == "bf16-mixed"
    task = task.to(device).train()
    (optimizer,) = task.configure_optimizers()
    batches = _endless(loader)
    times = []
    for _ in range(steps + 1):
        started = time.perf_counter(), time.process_time()
        batch = task.transfer_batch_to_device(next(batches), device, 0)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            loss, _ = task.training_loss(batch)
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    return StepTime(*map(statistics.median, zip(*times[1:], strict=True)))


def _endless(loader: Any) -> Iterator[Any]:
    """Yield the batches of one pass over the data after the other."""
    while True:
        yield from loader
