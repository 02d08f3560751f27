"""Sums over a split: added up batch by batch on the device, read and divided once at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, distributed

from triptych.training.data import rank_and_world

Totals = dict[str, Tensor]
"""Sums so far, float64 scalars on the device (on the CPU where that has no float64)."""


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No gradients and no autocast: what is reported is computed in the weights' own precision."""
    with torch.no_grad(), torch.autocast(device_type=device.type, enabled=False):
        yield


def in_double(x: Tensor) -> Tensor:
    """The same numbers in float64, on their device where it has float64 (Apple's GPU has not)."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def add_sums(totals: Totals, sums: Mapping[str, Tensor], device: torch.device) -> None:
    """Add a batch's sums to the totals."""
    for name, value in sums.items():
        # Sums stay on the device: reading them every batch would make a GPU wait.
        amount = torch.as_tensor(value).detach()
        on_mps = "mps" in (amount.device.type, device.type)
        amount = in_double(amount if on_mps else amount.to(device))
        totals[name] = totals[name] + amount if name in totals else amount


def read_totals(totals: Totals) -> dict[str, float]:
    """Return the sums as Python numbers (one wait for the device)."""
    return {name: float(value) for name, value in totals.items()}


def of_all_ranks(totals: dict[str, float]) -> dict[str, float]:
    """Add up the sums of all ranks, in rank order; a rank may have had no batch at all."""
    _, world = rank_and_world()
    if world == 1:
        return totals
    parts: list[dict[str, float]] = [{} for _ in range(world)]
    distributed.all_gather_object(parts, totals)
    summed: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            summed[name] = summed.get(name, 0.0) + value
    return summed


def is_finite(value: float) -> bool:
    """Tell whether a figure can be reported."""
    return math.isfinite(value)
