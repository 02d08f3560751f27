"""A compiled run trains as the plain run does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import KillAt, long_run, timeless
from toy_task import Batch, ToyTask, checkpoint, weights

from triptych.training.run.settings import ComputeConfig

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace the graphs as a compiled run does, but hand them to no C++ compiler: seconds saved."""
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function: original(function, backend="aot_eager"))
    torch._dynamo.reset()


class Pure(ToyTask):
    """Keeps nothing between the steps, as the real tasks; says in which way it was called."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.scored_compiled: list[bool] = []
        self.loss_compiled = False

    def training_loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        self.loss_compiled = torch.compiler.is_compiling()
        real = batch.targets != -1
        logits = self.model(batch.inputs)
        nats = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), ignore_index=-1
        )
        return nats, real.sum()

    def score(self, batch: Batch) -> Any:
        self.scored_compiled.append(torch.compiler.is_compiling())
        return super().score(batch)


def go(folder: Path, *, compile: bool, resume: bool = False, **more: Any) -> Pure:
    task = Pure(initial=int(resume))
    run = {"compute": ComputeConfig(compile=compile)}
    long_run(folder, task, resume=resume, uneven=True, run=run, **more)
    return task


@pytest.mark.usefixtures("eager")
def test_a_compiled_run_is_the_plain_run(tmp_path: Path) -> None:
    plain = go(tmp_path / "plain", compile=False, max_steps=8)
    compiled = go(tmp_path / "compiled", compile=True, max_steps=8)
    assert [plain.loss_compiled, compiled.loss_compiled] == [False, True]
    for name, value in weights(plain).items():
        torch.testing.assert_close(value, weights(compiled)[name], rtol=1e-4, atol=1e-5)
    assert not any(compiled.scored_compiled)
    states = [checkpoint(tmp_path / name)["state_dict"] for name in ("plain", "compiled")]
    assert list(states[0]) == list(states[1]), "names in the checkpoint do not change"
    ToyTask().load_state_dict(states[1])
    assert compiled.compiled_loss is None


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("cut", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_a_compiled_run_is_resumed_bit_for_bit(cut: int, tmp_path: Path) -> None:
    uncut = go(tmp_path / "uncut", compile=True)
    go(tmp_path / "cut", compile=True, callbacks=[KillAt(cut)])
    second = go(tmp_path / "cut", compile=True, resume=True)
    for name, value in weights(uncut).items():
        assert torch.equal(value, weights(second)[name]), name
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "uncut")


@needs_compiler
@pytest.mark.slow
def test_a_run_with_the_real_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    plain = go(tmp_path / "plain", compile=False, max_steps=4)
    compiled = go(tmp_path / "compiled", compile=True, max_steps=4)
    # Dropout draws other numbers there, so the runs are alike and not equal.
    assert list(weights(plain)) == list(weights(compiled))
    assert compiled.latest["nats_per_token"] == pytest.approx(
        plain.latest["nats_per_token"], abs=0.1
    )
