"""R-Drop and distillation: the loss is its definition, and the teachers stay as they are."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_task import Batch, ToyTask, checkpoint, make_batch, toy_run

from triptych.core import heads
from triptych.core.heads import CategoricalHead, GivenLogits, MixtureOfLogisticsHead
from triptych.errors import UserError
from triptych.training.engine import objective as objective_module
from triptych.training.engine.objective import DistillationConfig, ObjectiveConfig, Predictions

N, V, D = 7, 5, 4


def kl(p: Tensor, q: Tensor) -> Tensor:
    """sum_v p_v log(p_v / q_v), term by term."""
    return torch.stack([a * (a / b).log() for a, b in zip(p, q, strict=True)]).sum()


def softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    return (logits / temperature).exp() / (logits / temperature).exp().sum()


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize(("alpha", "n_teachers"), [(5.0, 0), (0.0, 1), (0.0, 2), (2.0, 2)])
def test_the_loss_is_its_definition(
    alpha: float, n_teachers: int, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    weight, temperature = 0.3, 2.0
    head = CategoricalHead(D, V).double()
    torch.nn.init.normal_(head.logits.weight)
    own = [
        torch.randn(N, D, dtype=torch.float64, requires_grad=True) for _ in range(1 + (alpha > 0))
    ]
    taught = [torch.randn(N, V, dtype=torch.float64, requires_grad=True) for _ in range(n_teachers)]
    targets, real = torch.randint(V, (N,)), torch.tensor([1, 1, 0, 1, 1, 0, 1]).bool()
    if chunk is not None:
        monkeypatch.setattr(heads, "MAX_PARAMETER_BYTES", 8 * V * chunk)

    expected = torch.zeros((), dtype=torch.float64)
    for row in real.nonzero().squeeze(1).tolist():
        logits = [head(each[row]) for each in own]
        loss = sum(-softmax(each)[targets[row]].log() for each in logits) / len(own)
        if taught:
            mean = sum(softmax(each[row].detach()) for each in taught) / n_teachers
            teacher = mean ** (1 / temperature) / (mean ** (1 / temperature)).sum()
            apart = [kl(teacher, softmax(each, temperature)) for each in logits]
            distilled = temperature**2 * sum(apart) / len(own)
            loss = (1 - weight) * loss + weight * distilled
        if alpha:
            p, q = map(softmax, logits)
            loss = loss + alpha / 2 * (kl(p, q) + kl(q, p))
        expected = expected + loss / real.sum()
    wanted = torch.autograd.grad(expected, own)
    # Of every pass: an auxiliary loss of the model, as a ponder cost, and a second task.
    auxiliary, second = [3.0, 7.0][: len(own)], [0.5, 1.5][: len(own)]
    expected = expected + (sum(auxiliary) / real.sum() + sum(second)) / len(own)
    ponder = iter(auxiliary)
    monkeypatch.setattr(objective_module, "take_auxiliary_loss", lambda *_: next(ponder))

    passes = iter(zip(own, second, strict=True))
    given = iter(taught)

    def predict(model: Any, batch: Any) -> Predictions:
        if model is head:
            features, further = next(passes)
            return Predictions(features, head, targets, real, further=further)
        return Predictions(next(given) * 1.0, GivenLogits(V), targets, real)

    names = [str(k) for k in range(n_teachers)]
    objective = ObjectiveConfig(alpha, DistillationConfig(names, weight, temperature))
    teachers = [GivenLogits(V) for _ in names]
    loss, count = objective.training_loss(predict, head, None, teachers)
    assert int(count) == 5
    torch.testing.assert_close(loss, expected)
    loss.backward()
    for each, gradient in zip(own, wanted, strict=True):
        torch.testing.assert_close(each.grad, gradient)
        assert gradient[real].any(1).all()
    assert all(each.grad is None for each in taught)


class Predicting(ToyTask):
    """The toy task by its predictions."""

    def predictions(self, model: Any, batch: Batch) -> Predictions:
        real = batch.targets != -1
        return Predictions(model(batch.inputs), GivenLogits(10), batch.targets.clamp(min=0), real)

    def training_loss(self, batch: Batch) -> Any:
        return super(ToyTask, self).training_loss(batch)


def with_objective(**objective: Any) -> Any:
    settings = ToyTask().config.optim
    return replace(settings, objective=ObjectiveConfig(**objective))


def test_without_settings_the_loss_is_the_likelihood() -> None:
    batch = make_batch([0, 3, 5], None)
    losses = []
    for task in (Predicting(), Predicting(optim=with_objective(r_drop=1.0))):
        torch.manual_seed(0)
        losses.append(task.training_loss(batch)[0])
    torch.manual_seed(0)
    task = Predicting()
    real = batch.targets != -1
    torch.manual_seed(0)
    nats = torch.nn.functional.cross_entropy(task.model(batch.inputs)[real], batch.targets[real])
    torch.testing.assert_close(losses[0], nats)
    assert not torch.equal(losses[0], losses[1])


def test_a_teacher_is_neither_trained_nor_saved(tmp_path: Path) -> None:
    distillation = DistillationConfig(["teacher.ckpt"], weight=1.0)
    task = Predicting(optim=with_objective(distillation=distillation))
    teacher = copy.deepcopy(task.model).eval().requires_grad_(False)
    before = copy.deepcopy(teacher.state_dict())
    task.teachers.append(teacher)
    names = list(task.state_dict())
    toy_run(tmp_path, task, max_steps=4, accumulate_grad_batches=2)
    assert not teacher.training
    assert all(torch.equal(before[name], w) for name, w in teacher.state_dict().items())
    assert list(checkpoint(tmp_path)["state_dict"]) == names
    assert len(list(task.parameters())) == len(list(teacher.parameters()))
    assert task.double().teachers[0].last.weight.dtype is torch.float64


@pytest.mark.parametrize("more", [{"r_drop": 2.0}, {"distillation": DistillationConfig(["a"])}])
def test_a_compiled_objective_is_the_plain_one(more: dict[str, Any]) -> None:
    task = Predicting(optim=with_objective(**more))
    if "distillation" in more:
        task.teachers.append(copy.deepcopy(task.model).eval().requires_grad_(False))
        torch.nn.init.normal_(task.teachers[0].last.weight)
    task.model.dropout.p = 0.0
    batch = make_batch([0, 3, 5], None)
    torch._dynamo.reset()
    compiled = torch.compile(task.training_loss, backend="aot_eager")
    for one, other in zip(task.training_loss(batch), compiled(batch), strict=True):
        torch.testing.assert_close(one, other)


def test_models_that_cannot_have_it_are_refused() -> None:
    wanted = ObjectiveConfig(r_drop=1.0)
    parts = torch.nn.Sequential(torch.nn.Dropout(0.0), CategoricalHead(4, 3))
    with pytest.raises(UserError, match=r"r_drop is 1, but the model has no dropout"):
        wanted.check(parts, predicts=True)
    parts = torch.nn.Sequential(torch.nn.Dropout(0.1), MixtureOfLogisticsHead(4, 8, 1, 2))
    with pytest.raises(UserError, match=r"r_drop compares probabilities of categories"):
        wanted.check(parts, predicts=True)
    distilled = ObjectiveConfig(distillation=DistillationConfig(["a.ckpt"]))
    with pytest.raises(UserError, match=r"distillation compares"):
        distilled.check(torch.nn.Sequential(), predicts=False)
    ObjectiveConfig().check(parts, predicts=False)
