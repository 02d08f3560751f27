"""A whole run: what lies in its folder, what is refused, how it ends."""

from __future__ import annotations

import json
import shutil
import signal
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from pytorch_lightning import Callback
from test_resume import KillAt
from toy_task import Batch, ToyTask, checkpoint, make_batch, rows, toy_run, validation_loader

from triptych.errors import Diverged, Interrupted, UserError
from triptych.training.callbacks.checkpointing import StopOnSignal
from triptych.training.engine import speed as meter_module
from triptych.training.engine.evaluate import sum_scores
from triptych.training.engine.optim import Cosine
from triptych.training.loading import loader as loader_module
from triptych.training.loading.batches import shuffled_batches
from triptych.training.loading.loader import ResumableLoader
from triptych.training.run.settings import OptimConfig, RunConfig


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_bf16_clips_gradients_beside_a_fused_optimiser(tmp_path: Path, algorithm: str) -> None:
    """Lightning's own clipping refuses that pair."""
    seen: list[float] = []

    class Look(Callback):
        def on_train_batch_end(self, trainer: Any, task: Any, *rest: Any) -> None:
            seen.append(max(float(p.grad.abs().max()) for p in task.parameters()))

    clip = {"gradient_clip_val": 1e-4, "gradient_clip_algorithm": algorithm}
    toy_run(tmp_path / "toy", max_steps=3, precision="bf16-mixed", callbacks=[Look()], **clip)
    assert len(seen) == 3
    assert max(seen) <= 1.001e-4


def test_folder_holds_all_that_was_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "toy"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        task = toy_run(folder, gradient_clip_val=1.0, log_every_n_steps=2)
    assert f"Training 250 parameters on CPU in 32-true; the run is in {folder}." in (
        capsys.readouterr().out
    )
    assert {path.name for path in folder.iterdir()} == {
        "checkpoints", "config.yaml", "metrics.csv", "samples", "versions.json",
    }  # fmt: skip
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    assert config["model"] == {"d_model": 16}
    assert config["trainer"]["max_steps"] == 6
    record = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    assert record["starts"][0]["torch"] == str(torch.__version__)
    written = rows(folder)
    logged = [(int(row["step"]), bool(row["train/loss"])) for row in written]
    assert logged == [(1, True), (2, True), (3, False), (4, True), (6, True), (6, False)]
    assert float(written[-1]["val/nats_per_token"]) == pytest.approx(task.latest["nats_per_token"])
    assert written[-1]["val/exact_match"] == "0.5"
    assert float(written[-2]["time/tokens_per_s"]) > 0
    assert (folder / "samples" / "step-00000006" / "words.csv").read_text() == "in,out\na,1\n"
    for name in ("best", "last"):
        header = checkpoint(folder, name)["triptych"]
        assert header["vocabulary"] == ["a", "b"]
        assert header["domain"] == "toy"
        assert (header["model"], header["lora_alpha"]) == ({"d_model": 16}, 16.0)
        assert header["run"]["name"] == folder.name  # of the run, which opening does not read
        assert header["trainer"]["max_steps"] == 6
        assert header["metrics"]["exact_match"] == 0.5


@pytest.mark.parametrize(("making", "stepping"), [(1.0, 0.0), (0.0, 1.0), (1.0, 3.0)])
def test_share_of_the_time_that_the_data_take_is_logged(
    making: float, stepping: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]  # a clock of our own: on a busy machine shares of real time are anything
    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(loader_module, "time", clock)
    monkeypatch.setattr(meter_module, "time", clock)

    class Slow(ToyTask):
        def training_loss(self, batch: Batch) -> Any:
            now[0] += stepping
            return super().training_loss(batch)

        def score(self, batch: Batch) -> Any:
            now[0] += 10  # validation is no training, and its batches are not counted
            return super().score(batch)

    def slowly(items: list[int], generator: torch.Generator | None) -> Batch:
        now[0] += making
        return make_batch(items, generator)

    loader = ResumableLoader(21, shuffled_batches(21, 3), slowly, seed=5)
    settings = {"max_steps": 10, "log_every_n_steps": 3, "val_check_interval": 4}
    toy_run(tmp_path / "toy", Slow(), loader=loader, **settings)
    logged = [row for row in rows(tmp_path / "toy") if row["train/loss"]]
    assert [row["step"] for row in logged] == ["1", "3", "6", "9", "10"]  # the last step too
    shares = [float(row["time/data_share"]) for row in logged if row["step"] in ("6", "9")]
    assert shares == [pytest.approx(making / (making + stepping))] * 2


def test_metrics_do_not_depend_on_the_batch_size_and_validation_equals_evaluate(
    tmp_path: Path,
) -> None:
    task = toy_run(tmp_path / "toy")
    for batch_size in (1, 2, 4, 11):
        task.train()
        loader = validation_loader(batch_size)
        totals = sum_scores(task, task.score, loader)
        metrics = task.metrics(totals)
        assert metrics["nats_per_token"] == pytest.approx(task.latest["nats_per_token"], rel=1e-6)
        assert totals["tokens"] == sum(2 + number % 5 for number in range(11))
        assert task.model.training, "evaluate puts the former mode back"


def test_validation_is_without_autocast_and_dropout(tmp_path: Path) -> None:
    seen = {}

    class Look(ToyTask):
        def training_loss(self, batch: Any) -> Any:
            seen["training"] = (torch.is_autocast_enabled("cpu"), self.model.training)
            return super().training_loss(batch)

        def score(self, batch: Any) -> Any:
            seen["score"] = (torch.is_autocast_enabled("cpu"), self.model.training)
            return super().score(batch)

    toy_run(tmp_path / "toy", Look(), max_steps=3, precision="bf16-mixed")
    assert seen == {"training": (True, True), "score": (False, False)}


def test_learning_rate_follows_the_schedule(tmp_path: Path) -> None:
    rates = []

    class Look(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    toy_run(tmp_path / "toy", max_steps=5, callbacks=[Look()])
    expected = [0.01 * step / 3 for step in (1, 2, 3)] + [0.01 * (3 / n) ** 0.5 for n in (4, 5)]
    assert rates == pytest.approx(expected)


def test_every_step_has_a_seed_of_its_own(tmp_path: Path) -> None:
    seeds = []

    class Look(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            seeds.append(torch.initial_seed())

    toy_run(tmp_path / "toy", callbacks=[Look()])
    assert len(set(seeds)) == 6


def test_nan_loss_ends_the_run_and_saves_nothing_more(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"training loss became nan at step 5") as error:
        toy_run(tmp_path / "toy", ToyTask(poison_at=4), max_steps=20)
    assert error.value.exit_code == 1
    content = checkpoint(tmp_path / "toy")
    assert content["triptych"]["step"] == 3
    assert all(value.isfinite().all() for value in content["state_dict"].values())


def test_nan_in_validation_ends_the_run(tmp_path: Path) -> None:
    class Broken(ToyTask):
        def metrics(self, totals: dict[str, float]) -> dict[str, float]:
            return {"nats_per_token": float("nan")}

    with pytest.raises(Diverged, match=r"val/nats_per_token is nan at step 3"):
        toy_run(tmp_path / "toy", Broken())
    assert not list((tmp_path / "toy" / "checkpoints").iterdir())


def test_faults_of_the_code_keep_their_class(tmp_path: Path) -> None:
    class Broken(ToyTask):
        def score(self, batch: Any) -> Any:
            raise ZeroDivisionError("planted")

    # The one batch of validation before the training finds it before time is spent.
    task = Broken()
    with pytest.raises(ZeroDivisionError, match="planted"):
        toy_run(tmp_path / "toy", task)
    assert task.seen == []


def test_unwritable_folder_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    task = ToyTask()
    with pytest.raises(UserError, match="cannot be written"):
        toy_run(tmp_path / "file" / "toy", task)
    with pytest.raises(UserError, match="cannot be written"):
        toy_run(Path("/proc/toy"), task)
    assert task.seen == []


def test_sigint_ends_with_130_and_a_sentence(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)  # a shell's background job ignores it
    with pytest.raises(Interrupted, match=r"SIGINT ended the run after step 2.*--resume") as error:
        toy_run(tmp_path / "toy", callbacks=[KillAt(1, signal.SIGINT)])
    assert error.value.exit_code == 130
    assert checkpoint(tmp_path / "toy")["triptych"]["step"] == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_second_signal_ends_at_once(tmp_path: Path) -> None:
    class Again(KillAt):
        def on_train_batch_start(self, trainer: Any, *more: Any) -> None:
            super().on_train_batch_start(trainer, *more)
            super().on_train_batch_start(trainer, *more)

    with pytest.raises(Interrupted, match="second time"):
        toy_run(tmp_path / "toy", callbacks=[Again(1)])


def test_cosine_without_an_end_is_refused(tmp_path: Path) -> None:
    task = ToyTask(OptimConfig(schedule=Cosine()))
    with pytest.raises(UserError, match=r"Cosine.*trainer\.max_steps"):
        toy_run(tmp_path / "toy", task, max_steps=-1, max_time="00:00:01:00")
    assert not (tmp_path / "toy").exists(), "it would be in the way of the corrected command"


@pytest.mark.parametrize("steps", [-1, 1000])
def test_cosine_ends_at_the_last_epoch(tmp_path: Path, steps: int) -> None:
    task = ToyTask(OptimConfig(learning_rate=0.5, schedule=Cosine(warmup_steps=0)))
    toy_run(tmp_path, task, max_steps=steps, max_epochs=2, accumulate_grad_batches=2)
    last = [row for row in rows(tmp_path) if row["train/loss"]][-1]
    assert last["step"] == "8"
    assert float(last["train/learning_rate"]) == pytest.approx(0.0)


def test_impossible_run_settings_are_named() -> None:
    for name in ("", "../x"):
        with pytest.raises(ValueError, match=f"name is '{name}'"):
            RunConfig(name=name)


def test_a_run_that_fails_keeps_its_checkpoints(tmp_path: Path) -> None:
    class Fault(Callback):
        def on_fit_end(self, *_: Any) -> None:
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        toy_run(tmp_path / "toy", callbacks=[Fault()])
    assert (tmp_path / "toy/checkpoints/last.ckpt").exists()


def test_checkpoints_are_kept_even_where_no_step_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the training happens in another process, and this one fails at the end."""
    monkeypatch.setattr(StopOnSignal, "on_train_start", lambda *_: None)
    test_a_run_that_fails_keeps_its_checkpoints(tmp_path)


def test_a_trial_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        toy_run(tmp_path / "toy", ToyTask(poison_at=0), fast_dev_run=2)
    assert not (tmp_path / "toy").exists()


def test_a_best_file_without_a_score_is_not_called_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a kill leaves it between the writing of best.ckpt and of last.ckpt."""
    toy_run(tmp_path / "toy", limit_val_batches=0)
    checkpoints = tmp_path / "toy/checkpoints"
    shutil.copy(checkpoints / "last.ckpt", checkpoints / "best.ckpt")
    toy_run(tmp_path / "toy", max_steps=9, limit_val_batches=0, resume=True)
    assert "Finished at step 9" in capsys.readouterr().out


def test_fast_dev_run_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = toy_run(tmp_path / "toy", fast_dev_run=2)
    assert len(task.seen) == 2
    assert not (tmp_path / "toy").exists()
    out = capsys.readouterr().out
    assert "its files are deleted" in out
    assert "best" not in out
    toy_run(tmp_path / "toy")
    kept = (tmp_path / "toy/checkpoints/last.ckpt").read_bytes()
    toy_run(tmp_path / "toy", max_steps=12, fast_dev_run=1, resume=True)
    assert (tmp_path / "toy/checkpoints/last.ckpt").read_bytes() == kept


def test_resume_auto_begins_anew_after_a_kill_before_the_first_checkpoint(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    task = toy_run(whole)
    toy_run(cut, max_steps=2)
    (cut / "checkpoints/last.ckpt").unlink()
    assert toy_run(cut, resume="auto").seen == task.seen
    steps = [[row["step"] for row in rows(folder)] for folder in (whole, cut)]
    assert steps[0] == steps[1], "no row comes twice"
