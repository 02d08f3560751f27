"""Histograms of a run show both networks of a GAN."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from triptych.domains.gan import metrics
from triptych.domains.gan.config import Config
from triptych.domains.gan.model import ModelConfig
from triptych.domains.gan.task import prepare
from triptych.domains.pictures.config import DataConfig
from triptych.domains.pictures.sources import Digits
from triptych.training.loggers import Before, RunLogger
from triptych.training.run.checkpoint import read_checkpoint
from triptych.training.run.settings import LogConfig, RunConfig
from triptych.training.run.trainer import train


class Keeps(RunLogger):
    """Keep the weights and gradients before updates that are logged, and how far they moved."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: dict[int, dict[str, tuple[float, float]]] = {}

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        pass

    def log_update(self, before: Before, model: nn.Module, step: int) -> None:
        weights = model.state_dict()
        self.updates[step] = {
            name: (float((weights[name] - old).norm() / old.norm()), float(gradient.norm()))
            for name, (old, gradient) in before.items()
            if old.ndim >= 2
        }


def trained(config: Config, **trainer: Any) -> dict[str, Any]:
    """Weights after six updates of both networks."""
    arguments = {
        "max_steps": 6, "val_check_interval": 6, "check_val_every_n_epoch": None,
        "accelerator": "cpu", "precision": "32-true", "enable_progress_bar": False,
        "num_sanity_val_steps": 0, "gradient_clip_val": 1.0,
    }  # fmt: skip
    folder = train("gan", config, prepare, arguments | trainer)
    weights: dict[str, Any] = read_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]
    return weights


def test_both_networks_are_shown_and_trained_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "STEPS", 5)
    config = Config(
        data=DataConfig(source=Digits(), batch_size=16, samples=0, validation_limit=20),
        model=ModelConfig(attention_side=8, latent=4, channels=8, n_blocks=1),
        run=RunConfig(name="gan", directory=str(tmp_path), wandb="off"),
    )
    plain, keeps = trained(config), Keeps()
    log = LogConfig(histograms=3)
    config = replace(config, run=replace(config.run, name="shown", wandb="offline", log=log))
    shown = trained(config, logger=keeps)
    assert all(torch.equal(value, plain[name]) for name, value in shown.items())
    assert [*keeps.updates] == [3, 6]
    for update in keeps.updates.values():
        for part in ("discriminator", "generator"):
            moved = [update[name] for name in update if name.startswith(f"{part}.")]
            assert moved
            assert all(0 < ratio < 1 and gradient > 0 for ratio, gradient in moved)
