"""Lightning's arguments are checked by name, and precision follows the hardware."""

from __future__ import annotations

import pytest
import torch

from triptych.errors import UserError
from triptych.training import arguments
from triptych.training.arguments import check_arguments, choose_precision, writable
from triptych.training.run_folder import is_first_process


def test_unknown_and_reserved_arguments_are_named() -> None:
    with pytest.raises(UserError, match=r"trainer\.max_step is no argument.*trainer\.max_steps"):
        check_arguments({"max_step": 5})
    with pytest.raises(UserError, match=r"default_root_dir.*--run\.directory"):
        check_arguments({"max_steps": 5, "default_root_dir": "x"})
    with pytest.raises(UserError, match=r"overfit_batches.*no batch comes twice"):
        check_arguments({"max_steps": 5, "overfit_batches": 1})
    with pytest.raises(UserError, match="when to stop"):
        check_arguments({"max_steps": -1, "max_epochs": None})
    kept = check_arguments({"max_steps": 5, "strategy": "ddp", "callbacks": None, "logger": True})
    assert kept == {"max_steps": 5, "strategy": "ddp", "num_sanity_val_steps": 1}


def hardware(monkeypatch: pytest.MonkeyPatch, *, gpu: bool, gpu_bf16: bool, cpu: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: gpu_bf16)
    monkeypatch.setattr(arguments, "cpu_has_bf16", lambda: cpu)


@pytest.mark.parametrize(
    ("gpu", "gpu_bf16", "cpu", "accelerator", "d_model", "expected"),
    [
        (True, True, False, "auto", 64, "bf16-mixed"),
        (True, False, True, "auto", 512, "32-true"),
        (True, True, False, "cpu", 512, "32-true"),
        (True, True, True, "cpu", 512, "bf16-mixed"),
        (False, False, True, "auto", 128, "bf16-mixed"),
        (False, False, True, "auto", 64, "32-true"),
        (False, False, False, "auto", 512, "32-true"),
    ],
)
def test_auto_precision(
    gpu: bool,
    gpu_bf16: bool,
    cpu: bool,
    accelerator: str,
    d_model: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hardware(monkeypatch, gpu=gpu, gpu_bf16=gpu_bf16, cpu=cpu)
    assert choose_precision("auto", {"accelerator": accelerator}, d_model) == expected


def test_asked_precision_is_taken_and_fp16_needs_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware(monkeypatch, gpu=False, gpu_bf16=False, cpu=False)
    assert choose_precision("bf16", {}, 8) == "bf16-mixed"
    assert choose_precision("fp32", {}, 8) == "32-true"
    # Lightning would silently make it bf16 on a CPU.
    with pytest.raises(UserError, match="fp16, which needs a CUDA device"):
        choose_precision("fp16", {}, 8)
    hardware(monkeypatch, gpu=True, gpu_bf16=True, cpu=False)
    assert choose_precision("fp16", {}, 8) == "16-mixed"


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({}, True),
        ({"LOCAL_RANK": "0"}, True),
        ({"LOCAL_RANK": "1"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "2", "LOCAL_RANK": "0"}, False),
        ({"SLURM_PROCID": "3"}, False),
    ],
)
def test_only_one_process_writes_the_folder(
    environment: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() is first


def test_objects_among_the_arguments_are_written_as_text() -> None:
    assert writable({"devices": (0, 1), "plugins": [torch.float32]}) == {
        "devices": [0, 1],
        "plugins": ["torch.float32"],
    }
