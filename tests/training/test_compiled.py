"""A compiled training: the same run, faster or not, and the user is told which."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback
from test_resume import KillAt, rows, settings
from toy_task import Batch, ToyTask, train_loader, validation_loader, weights

from triptych.errors import UserError
from triptych.training import compiled as module
from triptych.training import trainer as run_module
from triptych.training.checkpoint import read_checkpoint
from triptych.training.compiled import check_compiler, verdict
from triptych.training.exceptions import Interrupted
from triptych.training.run_settings import RunConfig
from triptych.training.trainer import train

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


def go(
    folder: Path, name: str, *, compile: bool, resume: bool = False, initial: int = 0, **more: Any
) -> Pure:
    task = Pure(initial=initial)
    config = RunConfig(name=name, directory=str(folder), wandb="off", seed=3, compile=compile)
    with contextlib.suppress(Interrupted):
        loaders = train_loader(uneven=True), validation_loader()
        train(task, *loaders, config, settings(**more), resume)
    return task


@pytest.mark.usefixtures("eager")
def test_a_compiled_run_is_the_plain_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = go(tmp_path, "plain", compile=False, max_steps=14)
    assert "Compiled" not in capsys.readouterr().out
    compiled = go(tmp_path, "compiled", compile=True, max_steps=14)
    said = capsys.readouterr().out
    assert said.count("Compiled:") == said.count("Compiled: the first 12 batches took") == 1
    assert [plain.loss_compiled, compiled.loss_compiled] == [False, True]
    for name, value in weights(plain).items():
        torch.testing.assert_close(value, weights(compiled)[name], rtol=1e-4, atol=1e-5)
    assert not any(compiled.scored_compiled)
    states = [
        read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")["state_dict"]
        for name in ("plain", "compiled")
    ]
    assert list(states[0]) == list(states[1]), "names in the checkpoint do not change"
    ToyTask().load_state_dict(states[1])
    assert compiled.compiled_loss is None


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("cut", [2, 6])
def test_a_compiled_run_is_resumed_bit_for_bit(cut: int, tmp_path: Path) -> None:
    uncut = go(tmp_path, "uncut", compile=True)
    go(tmp_path, "cut", compile=True, callbacks=[KillAt(cut)])
    second = go(tmp_path, "cut", compile=True, resume=True, initial=1)
    for name, value in weights(uncut).items():
        assert torch.equal(value, weights(second)[name]), name
    assert rows(tmp_path, "cut") == rows(tmp_path, "uncut")


@needs_compiler
@pytest.mark.slow
def test_a_run_with_the_real_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    plain = go(tmp_path, "plain", compile=False, max_steps=4)
    compiled = go(tmp_path, "compiled", compile=True, max_steps=4)
    # Dropout draws other numbers there, so the runs are alike and not equal.
    assert list(weights(plain)) == list(weights(compiled))
    assert compiled.latest["nats_per_token"] == pytest.approx(
        plain.latest["nats_per_token"], abs=0.1
    )


def test_no_compiler_is_one_sentence_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
    torch._dynamo.reset()
    check_compiler.cache_clear()
    try:
        with pytest.raises(
            UserError, match=r"run\.compile needs a working C\+\+ compiler"
        ) as caught:
            go(tmp_path, "a", compile=True)
    finally:
        check_compiler.cache_clear()
        torch._dynamo.reset()
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a").exists()


def test_a_failure_without_words_is_still_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(function: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(torch, "compile", broken)
    check_compiler.cache_clear()
    with pytest.raises(UserError, match=r"failed: RuntimeError\. Install it"):
        check_compiler("cpu")
    check_compiler.cache_clear()


def test_the_verdict_is_right() -> None:
    # 100 targets a batch: 1 s plain, 0.5 s compiled, after 10 s and thrice 3 s of compiling.
    timed = [(10.5, 100.0), *[(3.5, 100.0)] * 3, *[(0.5, 100.0)] * 8]
    said = verdict(timed, 0.01)
    assert said == (
        "Compiled: the first 12 batches took 25.0 s, 19.0 s of it compiling (at batch 1, 2, 3, 4); "
        "forward and backward take 500.0 ms a batch instead of 1,000.0 ms (2.00 x): it pays after "
        "38 batches (0:00:19)."
    )
    # What counts is the target: batches of other sizes are no faster and no slower.
    uneven = [
        (seconds * size, 100.0 * size) for (seconds, _), size in zip(timed, [1, 3] * 6, strict=True)
    ]
    assert "(2.00 x)" in verdict(uneven, 0.01)
    assert verdict(timed, 0.004).endswith("(0.80 x): it does not pay here, leave run.compile off.")


def test_the_trial_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The uncompiled timing of the first batch changes no gradient and no random number."""

    class Look(Callback):
        def on_train_batch_start(self, trainer: Any, task: Any, *rest: Any) -> None:
            if trainer.global_step == 0:
                assert all(parameter.grad is None for parameter in task.parameters())

    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setattr(run_module, "check_compiler", lambda device: None)
    plain = go(tmp_path, "plain", compile=False)
    timed = go(tmp_path, "timed", compile=True, callbacks=[Look()])
    for name, value in weights(plain).items():
        assert torch.equal(value, weights(timed)[name]), name
    assert module.WATCHED == 12
