"""Networks that are trained in turn: updates compared with gradient descent by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy_task import ToyModel, ToyTask, train, train_loader, validation_loader

from triptych.errors import UserError
from triptych.training.engine.alternating import AlternatingModule, Player
from triptych.training.engine.optim import Constant, OptimizerConfig
from triptych.training.run.settings import OptimConfig, RunConfig

RATE, FACTORS = 0.1, (1.0, 0.5)


@dataclass(frozen=True)
class Descent(OptimizerConfig):
    """Plain gradient descent."""

    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(module.parameters(), learning_rate)


class Two(ToyModel):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.a.weight, 2.0)
        nn.init.constant_(self.b.weight, 1.0)


class Turns(AlternatingModule, ToyTask):
    """The first player moves a to b, (a - b)^2; the second moves b away from a, (a + b)^2."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("toy_task.ToyModel", Two)
        super().__init__(OptimConfig(Descent(), RATE, Constant(warmup_steps=0)))

    def players(self) -> list[Player]:
        return [Player("a", self.model.a, FACTORS[0]), Player("b", self.model.b, FACTORS[1])]

    def player_loss(self, player: str, batch: Any) -> tuple[Tensor, int]:
        a, b = self.model.a.weight, self.model.b.weight
        return (a - b if player == "a" else a + b).square().sum(), 3


@pytest.mark.parametrize("clip", [None, 0.5])
def test_each_player_descends_its_own_loss_at_its_own_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clip: float | None
) -> None:
    task = Turns(monkeypatch)
    run = RunConfig("two", str(tmp_path), wandb="off")
    trainer = {"max_steps": 3, "gradient_clip_val": clip, "accelerator": "cpu"}
    train(task, train_loader(), validation_loader(), run, trainer)
    a, b = 2.0, 1.0
    most = clip or float("inf")
    for _ in range(3):
        losses = {"a": (a - b) ** 2}
        a -= RATE * FACTORS[0] * max(-most, min(most, 2 * (a - b)))
        losses["b"] = (a + b) ** 2  # sees the first player's update
        b -= RATE * FACTORS[1] * max(-most, min(most, 2 * (a + b)))
    assert task.model.a.weight.item() == pytest.approx(a, rel=1e-5)
    assert task.model.b.weight.item() == pytest.approx(b, rel=1e-5)
    expected = {
        f"train/{name}_loss": pytest.approx(loss, rel=1e-4) for name, loss in losses.items()
    }
    assert task.further_values() == expected


def test_what_needs_one_update_for_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Turns(monkeypatch)
    for arguments in ({"accumulate_grad_batches": 2}, {"precision": "16-mixed"}):
        with pytest.raises(UserError, match="in turn"):
            task.trainer_arguments(arguments)
    monkeypatch.setattr("triptych.training.engine.alternating.rank_and_world", lambda: (0, 2))
    with pytest.raises(UserError, match="one process"):
        task.setup("fit")
