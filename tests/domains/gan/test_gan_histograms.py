"""Histograms of a run show both networks of a GAN."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych.domains.gan import metrics
from triptych.domains.gan.config import Config
from triptych.domains.gan.model import ModelConfig
from triptych.domains.gan.task import prepare
from triptych.domains.pictures.config import DataConfig
from triptych.domains.pictures.sources import Digits
from triptych.training.loggers import RunLogger
from triptych.training.run.checkpoint import read_checkpoint
from triptych.training.run.settings import LogConfig, RunConfig
from triptych.training.run.trainer import train


class Keeps(RunLogger):
    """Keep what is logged of updates."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: dict[int, Any] = {}

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        pass

    def log_update(self, ratios: Any, histograms: Any, step: int) -> None:
        self.updates[step] = ratios, histograms


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
    for ratios, histograms in keeps.updates.values():
        for part in ("discriminator", "generator"):
            moved = [value for name, value in ratios.items() if f"/{part}." in name]
            assert moved
            assert all(0 < value < 1 for value in moved)
            counts, edges = next(
                found for name, found in histograms.items() if f"gradients/{part}." in name
            )
            assert counts.sum()
            assert edges[0] < edges[-1]
