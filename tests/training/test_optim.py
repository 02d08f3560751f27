"""The learning rate is a pure function of the step; decay touches matrices only."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from triptych.training.optim import OptimConfig, build, learning_rate_at


def rate(step: int, total: int | None = None, d_model: int = 512, **more: object) -> float:
    return learning_rate_at(OptimConfig(**more), step, d_model=d_model, total_steps=total)


@pytest.mark.parametrize(("step", "expected"), [(1, 1.75e-7), (4000, 6.99e-4), (16000, 3.49e-4)])
def test_noam_gives_the_published_rates(step: int, expected: float) -> None:
    got = rate(step, learning_rate=1.0, schedule="noam", warmup_steps=4000)
    assert got == pytest.approx(expected, rel=2e-3)


def test_noam_depends_on_the_width() -> None:
    narrow = rate(7, d_model=128, learning_rate=1.0, schedule="noam", warmup_steps=10)
    wide = rate(7, d_model=512, learning_rate=1.0, schedule="noam", warmup_steps=10)
    assert narrow == pytest.approx(2 * wide)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "constant"])
def test_warm_up_is_a_straight_line_to_the_peak(schedule: str) -> None:
    options = {"learning_rate": 0.5, "schedule": schedule, "warmup_steps": 10}
    assert [rate(step, 100, **options) for step in (1, 5, 10)] == pytest.approx([0.05, 0.25, 0.5])


def test_after_the_warm_up() -> None:
    options = {"learning_rate": 1.0, "warmup_steps": 10}
    assert rate(1000, schedule="constant", **options) == 1.0
    assert rate(40, schedule="inverse_sqrt", **options) == pytest.approx(0.5)
    assert rate(55, 100, schedule="cosine", **options) == pytest.approx(0.5)
    assert rate(100, 100, schedule="cosine", **options) == pytest.approx(0.0)
    assert rate(999, 100, schedule="cosine", min_lr_ratio=0.1, **options) == pytest.approx(0.1)
    middle = rate(55, 100, schedule="cosine", min_lr_ratio=0.1, **options)
    assert middle == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 2)))


def test_no_warm_up_starts_at_the_peak() -> None:
    for schedule in ("inverse_sqrt", "constant", "cosine"):
        first = rate(1, 1000, learning_rate=1.0, schedule=schedule, warmup_steps=0)
        assert first == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"optimizer": "adam", "weight_decay": 0.1}, "adamw"),
        ({"schedule": "noam", "warmup_steps": 0}, "at least 1"),
        ({"min_lr_ratio": 2.0}, "from 0 to 1"),
    ],
)
def test_impossible_values_are_named(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        OptimConfig(**wrong)


def test_decay_falls_on_matrices_only() -> None:
    module = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    before = {name: value.clone() for name, value in module.named_parameters()}
    optimizer = build(OptimConfig(weight_decay=0.5, learning_rate=0.1), module)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, value in module.named_parameters():
        share = 1 - 0.1 * 0.5 if value.ndim >= 2 else 1.0
        torch.testing.assert_close(value, before[name] * share)


def test_tied_and_frozen_parameters_count_once_and_not_at_all() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    module[2].requires_grad_(False)
    groups = build(OptimConfig(), module).param_groups
    assert [len(group["params"]) for group in groups] == [1, 2]
