"""Sums over a split: batch by batch, and over all ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from triptych.training import metric_sums as sums


def test_batches_are_added_up_in_double_precision() -> None:
    totals: sums.Totals = {}
    for value in (1e8, 1e-4, 1e-4):
        sums.add_sums(totals, {"nats": torch.tensor(value)}, torch.device("cpu"))
    sums.add_sums(totals, {"tokens": torch.tensor(3)}, torch.device("cpu"))
    found = sums.read_totals(totals)
    assert found["nats"] - 1e8 == pytest.approx(2e-4, rel=1e-3)
    assert found["tokens"] == 3


def test_all_ranks_count_also_one_without_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"nats": 2.0, "tokens": 4.0}
    monkeypatch.setattr(sums, "rank_and_world", lambda: (0, 1))
    assert sums.of_all_ranks(here) == here

    def gather(parts: list[Any], own: Any) -> None:
        parts[:] = [own, {}, {"nats": 0.5, "tokens": 1.0}]

    monkeypatch.setattr(sums, "rank_and_world", lambda: (0, 3))
    monkeypatch.setattr(sums.distributed, "all_gather_object", gather)
    assert sums.of_all_ranks(here) == {"nats": 2.5, "tokens": 5.0}
    assert here == {"nats": 2.0, "tokens": 4.0}


def test_a_device_without_double_precision_is_asked_for_none() -> None:
    """Apple's GPU: what is on the CPU already stays there."""
    totals: sums.Totals = {}
    for value in (torch.tensor(2.0, dtype=torch.float64), torch.tensor(1)):
        sums.add_sums(totals, {"nats": value}, torch.device("mps"))
    assert totals["nats"].device.type == "cpu"
    assert sums.read_totals(totals) == {"nats": 3.0}
