"""Scoring without Lightning: modes, devices, and sums that do not depend on the batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from triptych.training.engine.devices import to_device
from triptych.training.engine.evaluate import sum_scores


class Pair(NamedTuple):
    first: Tensor
    second: Tensor | None


@dataclass
class Rows:
    values: Tensor
    length: int


def test_to_device_moves_every_tensor_of_a_batch() -> None:
    meta = torch.device("meta")
    tensor = torch.zeros(2)
    assert to_device(tensor, meta).device == meta
    pair = to_device(Pair(tensor, None), meta)
    assert (pair.first.device, pair.second) == (meta, None)
    assert to_device([tensor, (tensor, 3)], meta)[1][0].device == meta
    assert to_device({"a": tensor}, meta)["a"].device == meta
    rows = to_device(Rows(tensor, 5), meta)
    assert (rows.values.device, rows.length) == (meta, 5)


def test_sum_scores_adds_all_batches_in_eval_mode_and_restores_the_modes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    model[1].eval()
    seen: list[Any] = []
    progress: list[tuple[int, int]] = []

    def score(batch: Tensor) -> dict[str, Tensor]:
        seen.append((model.training, torch.is_grad_enabled()))
        return {"sum": batch.sum()}

    batches = [torch.tensor([1.0, 2.0]), None, torch.tensor([4.0])]
    found = sum_scores(model, score, batches, lambda *done: progress.append(done))
    assert found == {"sum": 7.0}
    assert seen == [(False, False)] * 2
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert [model.training, model[0].training, model[1].training] == [True, True, False]
