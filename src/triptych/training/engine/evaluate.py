"""Scores of a split: sums over batches in float64, on the device, read once. No Lightning."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from triptych.decoding.ranks import gathered, share
from triptych.errors import UserError
from triptych.training.engine.devices import device_of, scoring, to_device
from triptych.types import Progress


@dataclass(frozen=True)
class Evaluation:
    """Score of a whole split."""

    domain: str
    split: str
    metrics: dict[str, float]
    """Ratios by name; the name contains the unit."""
    count: int
    """Items scored: pairs, images or pieces."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further results: scores of simple models, signatures, settings; JSON types only."""


def in_double(x: Tensor) -> Tensor:
    """Return x in float64, on its device, or on the CPU if the device is MPS (no float64)."""
    return (x.cpu() if x.device.type == "mps" else x).double()


class MetricSums:
    """Sums by name, added up over batches on the device: reading them would synchronise a GPU."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def add(self, sums: Mapping[str, Tensor]) -> None:
        """Add the sums of a batch, scalars."""
        for name, value in sums.items():
            amount = in_double(value.detach())
            self._sums[name] = self._sums[name] + amount if name in self._sums else amount

    def read(self) -> dict[str, float]:
        """Return the sums; those of processes that share the work are added in their order."""
        parts = gathered({name: float(value) for name, value in self._sums.items()})
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def sum_scores(
    model: nn.Module,
    score: Callable[[Any], Mapping[str, Tensor]],
    batches: Iterable[Any],
    progress: Progress | None = None,
    *,
    dynamic_rate: float = 0.0,
) -> dict[str, float]:
    """Return the sums that `score` gives for each batch, added up over all batches.

    score: as `TrainingModule.score`, of a batch on the model's device. batches: None in it is
    skipped. The sums of processes that share the work (`decoding.ranks`), each with batches of its
    own such as those of `FixedBatches`, are added. progress: called with (batches done, batches in
    all, or 0 if unknown). dynamic_rate: of dynamic evaluation (Krause et al. 2018, 1709.07432), 0
    for none: after each batch is scored, every weight w of the model, in float32, becomes
    w - dynamic_rate dL/dw, with L the batch's sum of nats over that of its tokens. At the end the
    weights are what they were. UserError for dynamic evaluation by several processes.
    """
    device = device_of(model)
    totals = MetricSums()
    length = len(batches) if isinstance(batches, Sized) else 0
    if dynamic_rate and share()[1] > 1:
        raise UserError("dynamic evaluation scores one batch after the other; expected --devices 1")
    with scoring(model), kept_weights(model) if dynamic_rate else nullcontext():
        for done, batch in enumerate(batches, start=1):
            if batch is not None:
                with torch.set_grad_enabled(dynamic_rate > 0):
                    sums = score(to_device(batch, device))
                totals.add(sums)
                if dynamic_rate:
                    _descend(model, sums, dynamic_rate)
            if progress is not None:
                progress(done, length)
    return totals.read()


@contextmanager
def kept_weights(model: nn.Module) -> Iterator[None]:
    """Give all parameters the values that they have now when the block ends."""
    kept = [(weight, weight.detach().clone()) for weight in model.parameters()]
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, value in kept:
                weight.copy_(value)


def _descend(model: nn.Module, sums: Mapping[str, Tensor], rate: float) -> None:
    """Make a step of gradient descent on the mean nats per token of a batch."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    with torch.enable_grad():
        loss = sums["nats"] / sums["tokens"]
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            weight.sub_(gradient, alpha=rate)
