"""The estimates of scripts/gpu_estimate, against arithmetic and against a real training step."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import yaml
from gpu.estimate import STEPS, Step, estimate
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from triptych.tools.complexity import kept_bytes

ROOT = Path(__file__).resolve().parents[2]
D, FF, LAYERS, LENGTH = 64, 256, 2, 64
FULL = "triptych.core.attention.full.Full"


def small(folder: Path, domain: str, base: str, **data: Any) -> Path:
    """A shipped configuration with a small model of full attention without dropout."""
    settings = yaml.safe_load((ROOT / f"configs/{base}.yaml").read_text(encoding="utf-8"))
    transformer = settings["model"]["transformer"]
    transformer |= {"n_layers": LAYERS, "d_model": D, "n_heads": 2, "dropout": 0.0}
    transformer["feed_forward"]["init_args"]["d_ff"] = FF
    transformer["attention"] = {"class_path": FULL}
    settings["data"] |= data
    path = folder / domain / "small.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def small_music(folder: Path) -> Path:
    sizes = {"sequence_length": LENGTH, "overlap": 0, "batch_size": 3}
    return small(folder, "music", "music/jsb-relative", **sizes)


def small_translation(folder: Path) -> Path:
    return small(folder, "translation", "translation/multi30k-en-de", max_tokens=1120)


def test_operations_are_six_a_weight_and_token_and_those_of_attention(tmp_path: Path) -> None:
    found = estimate(small_music(tmp_path))
    batch, vocabulary = 3, 47
    weights = LAYERS * (4 * D**2 + 2 * D * FF) + D * vocabulary
    pairs = batch * LENGTH**2 / 2  # causal, as one half
    attention = 3 * LAYERS * 2 * pairs * 2 * D
    assert found.targets == batch * LENGTH
    assert found.flops == 6 * weights * batch * LENGTH + attention


def on_cpu(path: Path) -> tuple[Step, Any]:
    """The training module of a configuration and its batch, with data, on the CPU."""
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings.pop("trainer")
    step = STEPS[path.parent.name](settings)
    zeros = torch.zeros

    def ones(*size: Any, device: str, **options: Any) -> Tensor:
        return zeros(*size, **options).fill_(1)

    with patch("torch.zeros", ones):
        return step, step.make_batch()


def checkpointed(folder: Path) -> Path:
    """The small music model with more blocks, which it computes again in the backward pass."""
    path = small_music(folder)
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings["model"]["transformer"] |= {"n_layers": 6, "activation_checkpointing": True}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


@pytest.mark.parametrize("chunk", [None, 300_000], ids=["whole loss", "loss in chunks"])
@pytest.mark.parametrize("make", [small_music, small_translation, checkpointed])
def test_memory_is_that_of_a_real_step(
    make: Any, chunk: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    if chunk is not None:
        monkeypatch.setattr("triptych.core.heads.MAX_PARAMETER_BYTES", chunk)
    found = estimate(path, bf16=False)
    step, batch = on_cpu(path)
    task = step.task.train()
    if make is not checkpointed and chunk is None:
        kept = kept_bytes(task, lambda: task.training_loss(batch))
        assert found.activation_bytes == pytest.approx(kept, rel=0.01)
    gradients = sum(p.numel() * p.element_size() for p in task.parameters())
    peak = found.state_bytes - gradients + peak_of_step(task, batch)
    assert peak <= found.memory_bytes() * 1.02
    assert found.memory_bytes() <= 1.3 * peak


def peak_of_step(task: Any, batch: Any) -> int:
    """Most bytes that a forward and backward pass holds at a time, by PyTorch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        task.training_loss(batch)[0].backward()
    events = [e for e in run.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def test_what_optimisers_keep_for_each_parameter(tmp_path: Path) -> None:
    path = small_music(tmp_path)
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    kept = {}
    for optimizer, ema_decay in (("AdamW", 0.0), ("AdamW", 0.99), ("Muon", 0.0)):
        settings["optim"] |= {"optimizer": {"class_path": optimizer}, "ema_decay": ema_decay}
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        found = estimate(path)
        kept[optimizer, ema_decay] = found.state_bytes / found.parameters
    assert kept["AdamW", 0.0] == 16  # weight, gradient, two moments
    assert kept["AdamW", 0.99] == 20
    assert 12 < kept["Muon", 0.0] < 13  # a single moment for the matrices of the blocks


def test_the_command_prints_a_row_for_each_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [small_music(tmp_path), small_translation(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["gpu_estimate", *map(str, files)])
    assert runpy.run_path(str(ROOT / "scripts/gpu_estimate"))["main"]() == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| small")]
    assert [row.strip("| ").split(" | ")[1:] for row in rows] == [
        list(estimate(path).figures().values()) for path in files
    ]


CONFIGS = sorted((ROOT / "configs/gpu").rglob("*.yaml"))


def number(figure: str) -> float:
    return float(figure.replace(",", ""))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] * (path.stem != "mnist"), id=path.stem)
        for path in CONFIGS
    ],
)
def test_the_page_has_the_figures_of_a_config(path: Path) -> None:
    lines = (ROOT / "docs/scaling.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    names = next(row for row in rows if row[0] == "config")
    page = {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows if len(row) == 8}
    found = estimate(path).figures()
    assert page[path.stem].keys() == found.keys()
    for name, figure in found.items():
        assert number(page[path.stem][name]) == pytest.approx(number(figure), rel=0.05), name
    assert number(found["memory GiB"]) < 70, "the file is for a GPU with 80 GB"
