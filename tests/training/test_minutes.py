"""`triptych train --minutes`: updates, validations and warm-up that fit into a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_task import TRAINER, ToyTask, checkpoint, train_loader, validation_loader

from triptych.config.schema import to_plain
from triptych.errors import UserError
from triptych.training.engine.optim import Cosine, Noam
from triptych.training.run.minutes import (
    LENGTH,
    Times,
    _warmed_up,
    fit_to_minutes,
    fitted,
    prepared_once,
)
from triptych.training.run.settings import RunConfig
from triptych.training.run.trainer import train

TIMES = Times(start=1.0, update=0.5, validation=5.0)


def test_updates_and_validations_fill_the_time() -> None:
    plan = fitted({"max_steps": 900, "val_check_interval": 300}, TIMES, 115.0, 2.0)
    assert plan == dict(zip(LENGTH, (198, -1, 66, None), strict=True))  # 3 x 5 s + 198 x 0.5 s
    per_update = {"accumulate_grad_batches": 4}
    plan = fitted(per_update, TIMES._replace(validation=0.0), 100.0, 2.0)
    assert (plan["max_steps"], plan["val_check_interval"]) == (200, 200)  # batches
    plan = fitted({}, TIMES, 20.0, 1.0)
    assert (plan["max_steps"], plan["val_check_interval"]) == (30, 30)  # one validation


def test_too_short_a_time_is_refused() -> None:
    with pytest.raises(UserError, match=r"--minutes 0.1 is too short"):
        fitted({}, TIMES, 5.2, 0.1)


def toy_config(folder: Path) -> Any:
    run = RunConfig(name="toy", directory=str(folder), wandb="off")
    return replace(ToyTask().config, run=run)


def prepare(config: Any, vocabulary: Any) -> Any:
    task = ToyTask(config.optim)
    task.config = config
    task.metadata |= {"run": to_plain(config.run), "optim": to_plain(config.optim)}
    return task, train_loader(), validation_loader()


@pytest.mark.parametrize("schedule", [Cosine(warmup_steps=400), Noam(warmup_steps=400)])
def test_a_shorter_warm_up_has_the_same_highest_rate(schedule: Any, tmp_path: Path) -> None:
    config = toy_config(tmp_path)
    config = replace(config, optim=replace(config.optim, schedule=schedule))

    def highest(of: Any) -> float:
        rates = (of.optim.schedule.rate(of.optim.learning_rate, step, total_steps=500, d_model=8)
                 for step in range(1, 500))  # fmt: skip
        return max(rates)

    shorter = _warmed_up(config, 20)
    assert shorter.optim.schedule.warmup_steps == 20
    assert highest(shorter) == pytest.approx(highest(config))


def test_a_run_keeps_its_numbers_when_it_goes_on(tmp_path: Path) -> None:
    config = toy_config(tmp_path)
    once = prepared_once(prepare)
    fitted_config, trainer = fit_to_minutes("toy", config, once, TRAINER, 0.03, resume=False)
    assert not config.run.folder.exists(), "the trial leaves nothing"
    assert fitted_config.optim.schedule.warmup_steps <= max(1, round(trainer["max_steps"] / 10))
    train("toy", fitted_config, once, trainer)
    content = checkpoint(config.run.folder)
    assert content["triptych"]["step"] == trainer["max_steps"]
    assert fit_to_minutes("toy", config, prepare, TRAINER, 9.0, resume=True) == (
        fitted_config, trainer,
    )  # fmt: skip
    directly = replace(fitted_config, run=replace(config.run, name="directly"))
    train("toy", directly, prepare, trainer)
    same = checkpoint(directly.run.folder)["state_dict"]
    assert all(torch.equal(content["state_dict"][name], same[name]) for name in same)
