"""The table of costs of layers, as text, as JSON and as a plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch

from triptych.tools.complexity.layers import UNREACHABLE, LayerKind
from triptych.tools.complexity.measure import kept_bytes, seconds
from triptych.types import Progress

REPEATS = 5
"""Timed calls, of which the median counts."""


class Row(NamedTuple):
    """Cost of one layer over one sequence."""

    layer: str
    order: str
    """Operations by length n, width d, window r and kernel k (table 1); empty where not in it."""
    length: int
    parameters: int
    flops: int
    """Of the forward pass."""
    sequential_operations: int
    longest_path: int | None
    """None where the last position never depends on the first."""
    kept_bytes: int
    """Activations kept for the backward pass, float32."""
    forward_seconds: float | None = None
    training_seconds: float | None = None
    """Forward and backward pass."""


def table(
    kinds: Mapping[str, LayerKind],
    lengths: Sequence[int],
    *,
    timed: bool = False,
    progress: Progress | None = None,
) -> list[Row]:
    """The costs of each kind at each length, on random inputs of batch size 1, on the CPU.

    timed: measure the time of the forward pass and of a training step too.
    progress: called with (rows made, rows).
    """
    rows = []
    for name, kind in kinds.items():
        layer = kind.build()
        for length in lengths:
            x = torch.randn(1, length, kind.width, requires_grad=True)
            forward = partial(kind.run, layer, x)
            step = partial(_train, forward)
            path = kind.longest_path(length)
            rows.append(
                Row(
                    name,
                    kind.order,
                    length,
                    sum(parameter.numel() for parameter in layer.parameters()),
                    kind.flops(length),
                    kind.sequential_operations(length),
                    None if path == UNREACHABLE else path,
                    kept_bytes(layer, forward),
                    seconds(forward, repeats=REPEATS) if timed else None,
                    seconds(step, repeats=REPEATS) if timed else None,
                )
            )
            if progress is not None:
                progress(len(rows), len(kinds) * len(lengths))
    return rows


def _train(forward: Callable[[], torch.Tensor]) -> None:
    forward().sum().backward()
