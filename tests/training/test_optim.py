"""The learning rate is a pure function of the step; decay touches matrices only."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from triptych.training.engine.optim import Adam, AdamW, Constant, Cosine, InverseSqrt, Noam


@pytest.mark.parametrize(("step", "expected"), [(1, 1.75e-7), (4000, 6.99e-4), (16000, 3.49e-4)])
def test_noam_gives_the_published_rates(step: int, expected: float) -> None:
    assert Noam(warmup_steps=4000).rate(1.0, step, d_model=512) == pytest.approx(expected, rel=2e-3)


def test_every_rate_is_that_of_the_definition() -> None:
    peak, warmup, total, width, least = 0.003, 7, 60, 48, 0.1
    schedules = (
        Constant(warmup), InverseSqrt(warmup), Cosine(warmup, min_ratio=least), Noam(warmup)
    )  # fmt: skip
    for step in range(1, total + 20):
        rise = min(1.0, step / warmup)
        wave = math.pi * min(max((step - warmup) / (total - warmup), 0.0), 1.0)
        expected = (
            peak * rise,
            peak * min(rise, (warmup / step) ** 0.5),
            peak * rise * (least + (1 - least) * (1 + math.cos(wave)) / 2),
            peak * width**-0.5 * min(step**-0.5, step * warmup**-1.5),
        )
        found = [each.rate(peak, step, total_steps=total, d_model=width) for each in schedules]
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-18), step


def test_no_warm_up_starts_at_the_peak() -> None:
    for kind in (InverseSqrt, Constant, Cosine):
        first = kind(warmup_steps=0).rate(1.0, 1, total_steps=1000)
        assert first == pytest.approx(1.0, rel=1e-4)


def test_decay_falls_on_matrices_only() -> None:
    module = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    before = {name: value.clone() for name, value in module.named_parameters()}
    optimizer = AdamW(weight_decay=0.5).build(module, 0.1)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, value in module.named_parameters():
        share = 1 - 0.1 * 0.5 if value.ndim >= 2 else 1.0
        torch.testing.assert_close(value, before[name] * share)


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_tied_and_frozen_parameters_count_once_and_not_at_all(kind: type[Adam]) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    module[2].requires_grad_(False)
    groups = kind().build(module, 3e-4).param_groups
    assert [len(group["params"]) for group in groups] == [1, 2]
