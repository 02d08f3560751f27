"""What a run tells about itself: gradient norm, memory, MFU, profilers, loggers, callbacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import Callback, LearningRateMonitor
from pytorch_lightning.loggers import CSVLogger
from toy_task import ToyTask, rows, toy_run

from triptych.cli.options import parser_of
from triptych.config.schema import parse_settings
from triptych.domains import find_domain
from triptych.training.engine import module
from triptych.training.run import checks

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "image" / "digits.yaml"


def test_the_norm_of_the_gradients_before_clipping_is_logged(tmp_path: Path) -> None:
    norms: dict[int, float] = {}

    class Look(Callback):
        def on_before_optimizer_step(self, trainer: Any, task: Any, optimizer: Any) -> None:
            squares = [float(p.grad.square().sum()) for p in task.parameters()]
            norms[trainer.global_step + 1] = sum(squares) ** 0.5

    folder = tmp_path / "toy"
    toy_run(folder, gradient_clip_val=1e-3, log_every_n_steps=2, callbacks=[Look()])
    logged = {
        int(row["step"]): float(row["train/gradient_norm"])
        for row in rows(folder)
        if row["train/loss"]
    }
    assert list(logged) == [1, 2, 4, 6]
    assert logged == pytest.approx({step: norms[step] for step in logged}, rel=1e-5)
    assert min(logged.values()) > 1e-3


def test_memory_and_mfu_are_those_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ToyTask()
    assert task.device_use() == {}
    monkeypatch.setattr(ToyTask, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 3 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(task.throughput, "tokens_per_second", lambda: 1e6)
    use = task.device_use()
    assert use["time/peak_memory_gib"] == 3.0
    parameters = sum(p.numel() for p in task.parameters())
    assert use["time/mfu"] == pytest.approx(6 * parameters * 1e6 / 989e12)
    frozen = next(task.model.parameters())
    frozen.requires_grad_(False)
    del task.flops_per_target
    assert task.flops_per_target == 6 * parameters - 2 * frozen.numel()
    monkeypatch.setattr(module, "peak_flops", lambda _: None)
    assert set(task.device_use()) == {"time/peak_memory_gib"}


def test_a_profiler_writes_its_report_into_the_folder_of_the_run(tmp_path: Path) -> None:
    toy_run(tmp_path / "toy", profiler="simple")
    report = (tmp_path / "toy" / "fit-profile.txt").read_text(encoding="utf-8")
    assert "run_training_batch" in report


def options(*arguments: str) -> dict[str, Any]:
    domain = find_domain("image")
    values, _ = parse_settings(parser_of("train", domain), ["--config", str(CONFIG), *arguments])
    return checks.trainer_settings(values["trainer"])


def test_callbacks_and_loggers_are_options_of_the_command_line(tmp_path: Path) -> None:
    found = options(
        "--trainer.callbacks+=LearningRateMonitor",
        "--trainer.callbacks.logging_interval=step",
        "--trainer.callbacks+=Timer",
        "--trainer.logger=CSVLogger",
        f"--trainer.logger.save_dir={tmp_path}",
        "--trainer.profiler=simple",
    )
    monitor, timer = found["callbacks"]
    assert isinstance(monitor, LearningRateMonitor)
    assert monitor.logging_interval == "step"
    assert type(timer).__name__ == "Timer"
    assert isinstance(found["logger"], CSVLogger)
    assert found["profiler"] == "simple"
