"""Lightning's arguments are checked by name, and precision follows the hardware."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from typing import Any

import pytest
import torch
from dataclass_rules import changeable_dataclasses, names_of_many_defaults, positional_options

from triptych.errors import UserError
from triptych.training.engine import devices
from triptych.training.engine.devices import choose_precision
from triptych.training.run.checks import check_settings
from triptych.training.run.settings import ComputeConfig, RunSettings


def check_arguments(trainer: dict[str, Any]) -> dict[str, Any]:
    return check_settings(RunSettings(None, None), trainer)


def test_reserved_arguments_are_named() -> None:
    with pytest.raises(UserError, match=r"default_root_dir.*--run\.directory"):
        check_arguments({"max_steps": 5, "default_root_dir": "x"})
    with pytest.raises(UserError, match="overfit_batches is set by the run"):
        check_arguments({"max_steps": 5, "overfit_batches": 1})
    with pytest.raises(UserError, match="when to stop"):
        check_arguments({"max_steps": -1, "max_epochs": None})
    kept = check_arguments({"max_steps": 5, "strategy": "ddp", "callbacks": None, "logger": True})
    assert kept == {
        "max_steps": 5,
        "strategy": "ddp",
        "num_sanity_val_steps": 1,
        "precision": "32-true",
    }


def test_workers_need_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunSettings(None, None)
    run = replace(run, run=replace(run.run, compute=ComputeConfig(data_workers=2)))
    check_settings(run, {"max_steps": 5})
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(UserError, match="cannot fork processes"):
        check_settings(run, {"max_steps": 5})
    check_arguments({"max_steps": 5})


def hardware(monkeypatch: pytest.MonkeyPatch, *, gpu: bool, gpu_bf16: bool, cpu: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: gpu_bf16)
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: cpu)


@pytest.mark.parametrize(
    ("gpu", "gpu_bf16", "cpu", "accelerator", "expected"),
    [
        (True, True, False, "auto", "bf16-mixed"),
        (True, False, True, "auto", "32-true"),
        (True, True, False, "cpu", "32-true"),
        (True, True, True, "cpu", "bf16-mixed"),
        (False, False, True, "auto", "bf16-mixed"),
        (False, False, False, "auto", "32-true"),
    ],
)
def test_auto_precision(
    gpu: bool,
    gpu_bf16: bool,
    cpu: bool,
    accelerator: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hardware(monkeypatch, gpu=gpu, gpu_bf16=gpu_bf16, cpu=cpu)
    assert choose_precision({"accelerator": accelerator, "precision": "auto"}) == expected
    assert choose_precision({"accelerator": accelerator}) == expected


def test_asked_precision_is_taken_and_fp16_needs_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware(monkeypatch, gpu=False, gpu_bf16=False, cpu=False)
    assert choose_precision({"precision": "bf16-mixed"}) == "bf16-mixed"
    assert choose_precision({"precision": "32-true"}) == "32-true"
    # Lightning would silently make it bf16 on a CPU.
    with pytest.raises(UserError, match="16-mixed, which needs a CUDA device"):
        choose_precision({"precision": "16-mixed"})
    hardware(monkeypatch, gpu=True, gpu_bf16=True, cpu=False)
    assert choose_precision({"precision": "16-mixed"}) == "16-mixed"


def test_values_of_this_package_cannot_be_changed() -> None:
    assert not changeable_dataclasses("triptych.training")
    assert not positional_options("triptych.training")
    assert not names_of_many_defaults("triptych.training")
