"""Sums over a split, accumulated in float64 on the device and read once at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, distributed

from triptych.training.data import rank_and_world

Totals = dict[str, Tensor]
"""Float64 scalars by name, on the device, or on the CPU if the device has no float64."""


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Disable gradients and autocast: metrics are computed in the dtype of the weights."""
    with torch.no_grad(), torch.autocast(device_type=device.type, enabled=False):
        yield


def in_double(x: Tensor) -> Tensor:
    """Return x in float64, on its device, or on the CPU if the device is MPS (no float64)."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def add_sums(totals: Totals, sums: Mapping[str, Tensor], device: torch.device) -> None:
    """Add a batch's sums to the totals."""
    for name, value in sums.items():
        # Reading the sums after each batch would synchronise a GPU.
        amount = torch.as_tensor(value).detach()
        on_mps = "mps" in (amount.device.type, device.type)
        amount = in_double(amount if on_mps else amount.to(device))
        totals[name] = totals[name] + amount if name in totals else amount


def read_totals(totals: Totals) -> dict[str, float]:
    """Return the sums as Python numbers; synchronises the device."""
    return {name: float(value) for name, value in totals.items()}


def of_all_ranks(totals: dict[str, float]) -> dict[str, float]:
    """Return the sums of all ranks, added in rank order; a rank may have had no batch."""
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
    """Return whether a metric is a finite number."""
    return math.isfinite(value)
