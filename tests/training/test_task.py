"""The parts of the base that a whole run does not show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed
from toy_task import ToyTask, make_batch

from triptych.errors import Diverged
from triptych.training.callbacks.checkpointing import KeepCheckpoints
from triptych.training.engine import module
from triptych.training.engine.speed import Throughput
from triptych.training.run import checkpoint
from triptych.training.run.checkpoint import code_commit


def calm_task() -> ToyTask:
    task = ToyTask()
    task.model.dropout.p = 0.0
    task._trainer = SimpleNamespace(global_step=0, accumulate_grad_batches=1)  # type: ignore[assignment]
    return task


def gradients(task: ToyTask) -> list[torch.Tensor]:
    found = [parameter.grad.clone() for parameter in task.parameters()]
    task.zero_grad()
    return found


def test_every_target_weighs_the_same_on_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """DDP's mean over two ranks of unequal batches = the gradient of one batch with all items."""
    task = calm_task()
    parts = [make_batch([0, 5], None), make_batch([3, 4, 9], None)]  # 4 and 17 real targets
    task.training_step(make_batch([0, 5, 3, 4, 9], None), 0).backward()
    expected = gradients(task)
    plain = [task.training_loss(part) for part in parts]
    everything = torch.stack(
        [torch.stack([count.double(), loss.detach().double() * count]) for loss, count in plain]
    ).sum(0)

    def all_reduce(shares: torch.Tensor) -> None:
        shares[:2] = everything

    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    averaged = [torch.zeros_like(value) for value in expected]
    for rank, part in enumerate(parts):
        monkeypatch.setattr(module, "rank_and_world", lambda rank=rank: (rank, 2))
        task.training_step(part, 0).backward()
        averaged = [a + g / 2 for a, g in zip(averaged, gradients(task), strict=True)]
    for one, other in zip(averaged, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("ranks", "signum"), [((1, 0), 15), ((0, 2), 2), ((1, 1), 15)])
def test_stop_of_one_rank_is_agreed_one_step_later(
    ranks: tuple[int, int], signum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = calm_task()
    monkeypatch.setattr(module, "rank_and_world", lambda: (1, 2))

    def all_reduce(shares: torch.Tensor) -> None:
        shares[2:] += torch.tensor(ranks)  # what the other ranks got; we got nothing

    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    task.training_step(make_batch([1], None), 0)
    assert task.agreed_stop == 0
    task.training_step(make_batch([1], None), 1)
    assert task.agreed_stop == signum


def test_meter_means_over_targets_and_leaves_validation_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("triptych.training.engine.speed.time.monotonic", lambda: now[0])
    meter = Throughput()
    for targets, loss in ((1.0, 4.0), (3.0, 0.0)):
        meter.add(targets=torch.tensor(targets), loss_sum=torch.tensor(targets * loss))
    now[0] += 2.0
    meter.pause()
    now[0] += 50.0
    meter.resume()
    assert meter.loss() == 1.0
    assert meter.tokens_per_second() == 2.0
    meter.reset()
    now[0] += 1.0
    assert meter.total_seconds() == 3.0
    assert meter.is_finite()
    meter.add(targets=torch.tensor(1.0), loss_sum=torch.tensor(float("inf")))
    meter.add(targets=torch.tensor(1.0), loss_sum=torch.tensor(1.0))
    assert not meter.is_finite()


def test_nothing_is_saved_after_a_loss_that_was_not_finite(tmp_path: Any) -> None:
    """On a GPU losses are read now and then only: a save must look first."""
    task = calm_task()
    task.throughput.add(targets=torch.tensor(1.0), loss_sum=torch.tensor(float("nan")))
    keep = KeepCheckpoints(tmp_path, minutes=0)
    keep.task = task
    with pytest.raises(Diverged):
        keep.save(SimpleNamespace(fast_dev_run=False, global_step=1))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_commit_is_none_in_a_foreign_repository(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    import subprocess

    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(checkpoint, "__file__", str(tmp_path / "training/run/checkpoint.py"))
    code_commit.cache_clear()
    assert code_commit() is None
    code_commit.cache_clear()
