"""Weights & Biases never stops the training."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_task import ToyTask, train_loader, validation_loader

from triptych.training.loggers import wandb as module
from triptych.training.loggers.media import Media
from triptych.training.loggers.wandb import WandbDecision, WandbMetrics, open_wandb
from triptych.training.run_config import RunConfig
from triptych.training.trainer import train


class FakeRun:
    """A wandb run that remembers, or fails."""

    id = "abc"

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.logged: list[dict[str, Any]] = []
        self.exit_code: int | None = None

    def log(self, figures: dict[str, Any]) -> None:
        if self.fails:
            raise ConnectionError("gone")
        self.logged.append(figures)

    def define_metric(self, *_: Any, **__: Any) -> None:
        pass

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def fake_wandb(monkeypatch: pytest.MonkeyPatch, failing: set[str]) -> list[str]:
    tried: list[str] = []

    def init(*, mode: str, **_: Any) -> FakeRun:
        tried.append(mode)
        if mode in failing:
            raise RuntimeError("planted\nsecond line")
        return FakeRun()

    fake = SimpleNamespace(init=init, Settings=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return tried


@pytest.mark.parametrize(
    ("mode", "failing", "tried", "word"),
    [
        ("off", set(), [], "decided"),
        ("online", set(), ["online"], "decided"),
        ("online", {"online"}, ["online", "offline"], "online failed (RuntimeError: planted)"),
        ("online", {"online", "offline"}, ["online", "offline"], "is off: it failed"),
        ("offline", {"offline"}, ["offline"], "is off: it failed"),
    ],
)
def test_failing_start_falls_back_with_one_sentence(
    mode: Any,
    failing: set[str],
    tried: list[str],
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = fake_wandb(monkeypatch, failing)
    said: list[str] = []
    options: Any = {"folder": tmp_path, "identity": "i", "config": {}, "tell": said.append}
    logger = open_wandb(RunConfig(), decision=WandbDecision(mode, "decided"), **options)
    assert attempts == tried
    assert (logger is None) == (mode == "off" or set(tried) == failing)
    assert len(said) == 1
    assert word in said[0]


def test_wandb_that_fails_to_import_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    said: list[str] = []
    options: Any = {"folder": tmp_path, "identity": "i", "config": {}, "tell": said.append}
    assert open_wandb(RunConfig(), decision=WandbDecision("offline", "decided"), **options) is None
    assert "is off: it failed" in said[0]


def test_failure_in_the_middle_is_told_once() -> None:
    said: list[str] = []
    logger = WandbMetrics(FakeRun(fails=True), said.append)
    logger.log_metrics({"a": 1.0}, 1)
    logger.log_metrics({"a": 1.0}, 2)
    logger.log_media([Media("table", "t", columns=("a",))], 2)
    logger.finalize("success")
    assert len(said) == 1
    assert "the training goes on" in said[0]


def test_run_is_closed_with_its_status() -> None:
    run = FakeRun()
    logger = WandbMetrics(run, print)
    logger.log_metrics({"a": 1.0}, 7)
    assert run.logged == [{"a": 1.0, "step": 7}]
    logger.finalize("failed")
    logger.finalize("success")
    assert run.exit_code == 1


@pytest.mark.slow
def test_real_wandb_offline_logs_all_kinds_of_media(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import struct
    import wave

    import numpy as np
    from PIL import Image

    class Artist(ToyTask):
        def log_samples(self, folder: Path) -> list[Media]:
            Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(folder / "a.png")
            with wave.open(str(folder / "a.wav"), "wb") as sound:
                sound.setparams((1, 2, 8000, 0, "NONE", ""))
                sound.writeframes(struct.pack("<100h", *range(100)))
            (folder / "a.mid").write_bytes(b"MThd")
            return [
                Media("image", "grid", folder / "a.png", caption="four"),
                Media("audio", "sound", folder / "a.wav"),
                Media("midi", "notes", folder / "a.mid"),
                Media("table", "words", columns=("a", "b"), rows=[(1, "x"), ("y", 2)]),
            ]

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = RunConfig(name="toy", directory=str(tmp_path))
    trainer = {"max_steps": 2, "val_check_interval": 2, "accelerator": "cpu"}
    train(Artist(), train_loader(), validation_loader(), config, trainer)
    said = capsys.readouterr().out
    assert "logs offline: no key was found" in said
    assert "failed" not in said
    folder = tmp_path / "toy"
    records = list((folder / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(records) == 1
    # wandb's own process writes the record a moment after the run has finished.
    for _ in range(100):
        if records[0].stat().st_size > 500:
            break
        time.sleep(0.1)
    assert records[0].stat().st_size > 500
    shown = list((folder / "wandb").glob("offline-run-*/files/media/*/samples/*"))
    assert len(shown) == 3
    assert len(list((folder / "samples" / "step-00000002").iterdir())) == 4


def test_module_has_no_wandb_at_import() -> None:
    assert not hasattr(module, "wandb")
