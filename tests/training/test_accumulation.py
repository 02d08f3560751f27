"""Accumulated micro-batches give the gradient of one batch that holds all their targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback
from toy_task import ToyTask, make_batch, toy_run

from triptych.training.engine.optim import TargetWeights
from triptych.training.loading.loader import ResumableLoader

# 2, 9, 2 and 8 items of 2 to 6 targets: micro-batches of very unequal size.
GROUPS = [[[0, 5], [1, 2, 3, 4, 6, 7, 8, 9, 10]], [[11, 12], [13, 14, 15, 16, 17, 18, 19, 20]]]


class Gradients(Callback):
    """What the optimiser saw, after clipping."""

    def __init__(self) -> None:
        self.seen: list[list[torch.Tensor]] = []
        self._step = 0

    def on_train_batch_end(self, trainer: Any, task: Any, *rest: Any) -> None:
        if trainer.global_step != self._step:
            self._step = trainer.global_step
            self.seen.append([parameter.grad.clone() for parameter in task.parameters()])


def gradients(folder: Path, plan: list[list[int]], **trainer: Any) -> list[list[torch.Tensor]]:
    task = ToyTask()
    task.model.dropout.p = 0.0
    loader = ResumableLoader(
        21, lambda epoch, generator: plan, lambda items, _: make_batch(items, None), seed=1
    )
    look = Gradients()
    epochs = {"val_check_interval": 1.0, "check_val_every_n_epoch": 1}
    toy_run(folder, task, loader=loader, max_steps=4, callbacks=[look], **epochs, **trainer)
    return look.seen


@pytest.mark.parametrize("clip", [None, 0.05])
def test_every_target_weighs_the_same_in_all_micro_batches(
    clip: float | None, tmp_path: Path
) -> None:
    whole = [[item for part in group for item in part] for group in GROUPS]
    expected = gradients(tmp_path / "whole", whole, gradient_clip_val=clip)
    parts = [part for group in GROUPS for part in group]
    clipped = {"gradient_clip_val": clip, "accumulate_grad_batches": 2}
    found = gradients(tmp_path / "parts", parts, **clipped)
    assert len(expected) == len(found) == 4
    for one, other in zip(expected, found, strict=True):
        for first, second in zip(one, other, strict=True):
            torch.testing.assert_close(first, second, rtol=2e-4, atol=1e-6)


def test_the_last_group_of_an_epoch_is_not_diluted(tmp_path: Path) -> None:
    """Three micro-batches, two an update: the third makes an update by itself."""
    (first, second), (third, _) = GROUPS
    expected = gradients(tmp_path / "whole", [first + second, third])
    parts = [first, second, third]
    found = gradients(tmp_path / "parts", parts, accumulate_grad_batches=2)
    for one, other in zip(expected[1], found[1], strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=1e-6)


def test_weights_are_of_the_size_of_one_and_nothing_is_left_over() -> None:
    accumulation = TargetWeights()
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    for sizes in ([30.0, 10.0], [5.0], [0.0, 4.0]):
        parameter.grad = torch.zeros_like(parameter)
        weights = [accumulation.weight(size, size) for size in map(torch.tensor, sizes)]
        assert weights[0] == min(1.0, sizes[0])
        for size, weight in zip(sizes, weights, strict=True):
            parameter.grad += weight * torch.tensor([size, 1.0])  # the means of two losses
        accumulation.rescale([parameter])
        wanted = [sum(size * size for size in sizes) / sum(sizes), 1.0]
        torch.testing.assert_close(parameter.grad.tolist(), wanted)
    before = parameter.grad.clone()
    accumulation.rescale([parameter])
    assert torch.equal(parameter.grad, before)
