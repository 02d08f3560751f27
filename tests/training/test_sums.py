"""Sums over a split: batch by batch, and over all ranks."""

from __future__ import annotations

import pytest
import torch

from triptych.training.engine import evaluate
from triptych.training.engine.evaluate import MetricSums


def test_batches_are_added_up_in_double_precision() -> None:
    sums = MetricSums()
    for value in (1e8, 1e-4, 1e-4):
        sums.add({"nats": torch.tensor(value)})
    sums.add({"tokens": torch.tensor(3)})
    found = sums.read()
    assert found["nats"] - 1e8 == pytest.approx(2e-4, rel=1e-3)
    assert found["tokens"] == 3


def test_all_ranks_count_also_one_without_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    here = MetricSums()
    here.add({"nats": torch.tensor(2.0), "tokens": torch.tensor(4)})
    assert here.read() == {"nats": 2.0, "tokens": 4.0}

    others = [{}, {"nats": 0.5, "tokens": 1.0}]
    monkeypatch.setattr(evaluate, "gathered", lambda own: [own, *others])
    assert here.read() == {"nats": 2.5, "tokens": 5.0}
