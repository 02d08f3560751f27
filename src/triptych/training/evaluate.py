"""Scores of a whole split: sums over all batches, without Lightning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from triptych.training.metric_sums import Totals, add_sums, full_precision, read_totals
from triptych.types import Progress


@dataclass(frozen=True)
class Evaluation:
    """Score of a whole split."""

    domain: str
    """Name of the domain, such as image."""
    split: str
    """Name of the split."""
    metrics: dict[str, float]
    """Ratios by name; the name contains the unit."""
    count: int
    """Items scored: pairs, images or pieces."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further results: scores of simple models, signatures, settings; JSON types only."""


@contextmanager
def scoring(model: nn.Module) -> Iterator[None]:
    """Eval mode and full precision, without gradients; restores the mode of every submodule."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with full_precision(device_of(model)):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def sum_scores(
    model: nn.Module,
    score: Callable[[Any], Mapping[str, Tensor]],
    batches: Iterable[Any],
    progress: Progress | None = None,
) -> dict[str, float]:
    """Return the sums that `score` gives for each batch, added up over all batches.

    The model computes in eval mode without gradients and autocast. score: batch on the model's
    device -> sums by name, such as {"nats": ..., "tokens": ...}. batches: None in it is skipped.
    progress: called with (batches done, batches in all, or 0 if unknown).
    """
    device = device_of(model)
    totals: Totals = {}
    length = len(batches) if isinstance(batches, Sized) else 0
    with scoring(model):
        for done, batch in enumerate(batches, start=1):
            if batch is not None:
                add_sums(totals, score(to_device(batch, device)), device)
            if progress is not None:
                progress(done, length)
    return read_totals(totals)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters; the CPU for a model without any."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on a device: a tensor, tuple, list, dict or dataclass."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a NamedTuple
        return type(batch)(*(to_device(part, device) for part in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(to_device(part, device) for part in batch)
    if isinstance(batch, dict):
        return {name: to_device(part, device) for name, part in batch.items()}
    if is_dataclass(batch) and not isinstance(batch, type):
        parts = {f.name: to_device(getattr(batch, f.name), device) for f in fields(batch)}
        return replace(batch, **parts)
    return batch
