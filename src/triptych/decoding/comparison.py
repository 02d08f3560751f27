"""What other weights change in sampling: how much faster it is, at what likelihood."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.generate import COMPILED_ROOM, Reader
from triptych.decoding.sampling import Sampling, draw

SECONDS = 3.0
"""Longest time that the models are timed together, once they are warm."""
STRETCH = 16
"""Positions that are timed at a time, of one model and then of the other."""


@dataclass(frozen=True)
class Comparison:
    """Samples drawn with some weights, beside what float32 would have taken and thinks of them."""

    weights: str
    """bf16 or int8."""
    speed: float
    """Values drawn per second with these weights, over all rows."""
    speed_fp32: float
    """The same with float32."""
    values: str
    """What the values are, such as tokens."""
    cost: float
    """What the drawn values cost under the model with these weights, in `unit`."""
    cost_fp32: float
    """The same under the float32 model."""
    unit: str
    """Such as nats/token or bits/dim."""

    def sentence(self) -> str:
        """The comparison for a person."""
        return (
            f"{self.weights} weights: {self.speed / self.speed_fp32:.2f} x the speed of fp32 "
            f"({self.speed:,.0f} against {self.speed_fp32:,.0f} {self.values}/s); these samples "
            f"cost {self.cost_fp32:.4f} {self.unit} under fp32, {self.cost:.4f} under "
            f"{self.weights} ({self.cost - self.cost_fp32:+.4f})"
        )


Compared = Callable[[Comparison], None]
"""Called with what the weights of a draw changed."""


@torch.no_grad()
def speeds(
    models: Sequence[tuple[DecoderOnly, Tensor | None]],
    *,
    batch: int,
    length: int,
    sampling: Sampling,
    compile: bool = False,
) -> list[float]:
    """Values that each (model, condition [B, D]) draws a second, over all rows: [models].

    Drawn are at most the first 256 positions, in short stretches of one model and then the next,
    so that other work of the machine meets all of them alike; the median of their speeds counts.
    The first stretch of each, with all that is made ready in it, does not.
    """
    length = min(length, COMPILED_ROOM)
    stretches = [
        _stretches(model, condition, batch, length, sampling, compile)
        for model, condition in models
    ]
    for each in stretches:
        next(each)
    found: list[list[float]] = [[] for _ in models]
    stop = time.perf_counter() + SECONDS
    while time.perf_counter() < stop or not found[0]:
        for speed, each in zip(found, stretches, strict=True):
            speed.append(next(each))
    return [statistics.median(speed) for speed in found]


def _stretches(
    model: DecoderOnly,
    condition: Tensor | None,
    batch: int,
    length: int,
    sampling: Sampling,
    compile: bool,
) -> Iterator[float]:
    """Values per second of each stretch; behind the last position it begins anew, without end."""
    reader = Reader(model, batch, length, condition, compile=compile)
    generator = torch.Generator(model.start.device)  # the caller's random numbers stay as they are
    nothing = model.no_values(batch)
    values = nothing.new_zeros(batch, length, *nothing.shape[2:])  # [B, L]
    while True:
        for first in range(0, length, STRETCH):
            last = min(first + STRETCH, length)
            started = time.perf_counter()
            for t in range(first, last):
                parameters = reader.step(values, t)[:, 0] if t else reader.start(nothing, None)
                values[:, t] = draw(model.head, parameters, sampling, generator)
            int(values[:, last - 1].sum())  # a GPU works on in the background until it is asked
            yield batch * (last - first) / (time.perf_counter() - started)
