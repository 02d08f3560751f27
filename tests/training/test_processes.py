"""Runs as processes: real signals, and two processes that train as one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_task import (
    ToyTask,
    checkpoint,
    make_batch,
    rows,
    toy_run,
    train_loader,
    validation_loader,
)

from triptych.training.engine.evaluate import sum_scores
from triptych.training.loading.batches import cut
from triptych.training.loading.loader import FixedBatches
from triptych.training.run import processes

SCRIPT = Path(__file__).parent / "toy_script.py"
DDP = {"devices": 2, "strategy": "ddp"}


def command(folder: Path, trainer: dict[str, Any], *flags: str) -> list[str]:
    return [sys.executable, str(SCRIPT), str(folder), json.dumps(trainer), *flags]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def finish(folder: Path, trainer: dict[str, Any], *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, trainer, *flags),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def stop_after_first_step(
    folder: Path, trainer: dict[str, Any], signum: int
) -> tuple[int, str, str]:
    """Start a slow run, send the signal when metrics.csv has its first row, wait for the end."""
    with subprocess.Popen(
        command(folder, trainer, "--slow"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        metrics = folder / "metrics.csv"
        for _ in range(2400):  # two processes take their time to start on a busy machine
            if metrics.is_file() and metrics.read_text(encoding="utf-8").count("\n") >= 3:
                break
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        process.send_signal(signum)
        out, err = process.communicate(timeout=180)
        return process.returncode, out, err


@pytest.mark.slow
def test_sigterm_saves_says_so_and_exits_143(tmp_path: Path) -> None:
    trainer = {"max_steps": 500}
    code, out, err = stop_after_first_step(tmp_path / "toy", trainer, signal.SIGTERM)
    assert code == 143, out + err
    assert "SIGTERM ended the run after step" in out
    assert "Traceback" not in out + err
    step = checkpoint(tmp_path / "toy")["triptych"]["step"]
    assert 0 < step < 400
    longer = {**trainer, "max_steps": step + 2, "validation": validation_loader(batch_size=2)}
    task = toy_run(tmp_path / "toy", ToyTask(initial=1), resume=True, **longer)
    assert len(task.seen) == 2


@pytest.mark.slow
def test_two_processes_give_the_validation_metrics_of_one(tmp_path: Path) -> None:
    double = finish(tmp_path / "two", DDP)
    assert double.returncode == 0, double.stdout + double.stderr
    assert "2 x CPU" in double.stdout
    assert "sync_dist" not in double.stdout + double.stderr
    assert double.stdout.count("DDP False True") == 2, "buffers stay, gradients are not copied"
    assert double.stdout.count("Finished at step 6") == 1
    content = checkpoint(tmp_path / "two")

    alone = ToyTask()
    alone.load_state_dict(content["state_dict"])
    metrics = alone.metrics(sum_scores(alone, alone.score, validation_loader(batch_size=11)))
    validations = [row for row in rows(tmp_path / "two") if row["val/exact_match"]]
    logged = [float(row["val/nats_per_token"]) for row in validations]
    assert len(logged) == 2
    assert logged[-1] == pytest.approx(metrics["nats_per_token"], rel=1e-6)
    assert content["triptych"]["metrics"]["nats_per_token"] == pytest.approx(logged[-1], rel=1e-9)
    loader = content["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]
    assert loader["batches_taken"] == 12, "two batches a step"


@pytest.mark.slow
def test_signal_to_one_of_two_processes_stops_both_at_one_step(tmp_path: Path) -> None:
    trainer = {**DDP, "max_steps": 500}
    code, out, err = stop_after_first_step(tmp_path / "toy", trainer, signal.SIGTERM)
    assert code == 143, out + err
    content = checkpoint(tmp_path / "toy")
    assert all(torch.isfinite(value).all() for value in content["state_dict"].values())
    assert 0 < content["triptych"]["step"] < 400


def hashes(swap: Callable[[Any], Any], *, vocabulary: Any = ("a", "b")) -> dict[str, int]:
    """Hashes of the toy's sets, where `swap` changes the number of an item."""

    def other_batch(items: Any, generator: Any) -> Any:
        return make_batch([swap(int(item)) for item in items], generator)

    task, validation = ToyTask(), validation_loader()
    task.metadata["vocabulary"] = list(vocabulary)
    training = train_loader()
    training.make_batch = other_batch
    return processes.data_hashes(task, training, validation)


def test_ranks_find_other_data_by_their_hashes() -> None:
    def found(other: dict[str, int]) -> list[str]:
        same = hashes(lambda item: item)
        return [name for name in same if same[name] != other[name]]

    assert found(hashes(lambda item: item)) == []
    for item in range(21):
        assert found(hashes(lambda i, item=item: i + 100 * (i == item))) == ["training data"]
    assert found(hashes(lambda item: item, vocabulary="ba")) == ["vocabulary"]
    shorter = FixedBatches(cut(range(10), 4), make_batch)
    other = processes.data_hashes(ToyTask(), train_loader(), shorter)
    assert found(other) == ["validation data"]
    reseeded = processes.data_hashes(ToyTask(), train_loader(seed=6), validation_loader())
    assert found(reseeded) == ["training data"]
