"""Honest scores of a whole split, by the code that validation runs too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

from lightning_fabric.utilities import move_data_to_device

from triptych.training.sums import Totals, add_sums, full_precision, read_totals
from triptych.training.task import Task


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
                add_sums(totals, task.score(move_data_to_device(batch, task.device)), task.device)
            if progress is not None:
                progress(done, length)
    numbers = read_totals(totals)
    return task.metrics(numbers), numbers
