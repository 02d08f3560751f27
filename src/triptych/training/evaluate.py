"""Honest scores of a whole split, by the code that validation runs too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from lightning_fabric.utilities import move_data_to_device
from torch import Tensor

from triptych.errors import UserError
from triptych.training.metric_sums import Totals, add_sums, full_precision, read_totals
from triptych.training.module import TrainingModule

Progress = Callable[[int, int], None]
"""Called with (units done, units in all, or 0 where that is unknown)."""

Source = TypeVar("Source")


@dataclass(frozen=True)
class Evaluation:
    """The score of a whole split."""

    domain: str
    """Name of the domain, such as image."""
    split: str
    """Name of the split."""
    metrics: dict[str, float]
    """Ratios named with their unit."""
    count: int
    """Items scored: pairs, pictures or pieces."""
    details: dict[str, Any] = field(default_factory=dict)
    """What stands beside: simple models' figures, signatures, settings; JSON types only."""


def reading_from(source: Source, directory: str) -> Source:
    """The same data source reading another folder; UserError where it reads none."""
    if not hasattr(source, "directory"):
        raise UserError(
            f"the data of this model come from {type(source).__name__}, which reads no folder"
        )
    return replace(source, directory=directory)  # type: ignore[type-var]


@contextmanager
def scoring(task: TrainingModule) -> Iterator[None]:
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
    task: TrainingModule,
    batches: Iterable[Any],
    progress: Progress | None = None,
    *,
    score: Callable[[Any], dict[str, Tensor]] | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Score all batches as validation does and return (metrics, totals).

    batches: for example `loader.fixed_batches(...)`; None in it is skipped.
    progress: called with (batches done, batches in all or 0 where unknown).
    score: gives a batch's sums in place of the task's own.
    The result does not depend on how items are cut into batches. Sampling and decoding are not
    done here; see each domain's `inference`.
    """
    totals: Totals = {}
    length = len(batches) if isinstance(batches, Sized) else 0
    sums_of = task.score if score is None else score
    with scoring(task):
        for done, batch in enumerate(batches, start=1):
            if batch is not None:
                add_sums(totals, sums_of(move_data_to_device(batch, task.device)), task.device)
            if progress is not None:
                progress(done, length)
    numbers = read_totals(totals)
    return task.metrics(numbers), numbers
