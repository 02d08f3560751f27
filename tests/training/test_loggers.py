"""The CSV is always written; Weights & Biases is decided first and never stops the training."""

from __future__ import annotations

import csv
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_task import ToyTask, train_loader, validation_loader

from triptych.training import loggers as module
from triptych.training.loggers import (
    CsvMetrics,
    WandbDecision,
    WandbMetrics,
    decide_wandb,
    find_key,
    open_wandb,
    reachable,
)
from triptych.training.media import Media
from triptych.training.run import train
from triptych.training.run_settings import RunConfig

KEY = {"WANDB_API_KEY": "x" * 40}
HOST = "api.wandb.ai"


def decide(tmp_path: Path, wanted: str = "auto", **more: Any) -> WandbDecision:
    options = {
        "environment": {},
        "home": tmp_path / "home",
        "here": tmp_path / "here",
        "installed": True,
        "can_reach": lambda url: True,
    }
    return decide_wandb(wanted, **{**options, **more})


def test_every_branch_of_the_decision(tmp_path: Path) -> None:
    unreachable = {"environment": KEY, "can_reach": lambda url: False}
    cases = [
        ("off", {"environment": KEY}, "off", "--run.wandb off"),
        ("auto", {"installed": False, "environment": KEY}, "off", "not installed"),
        ("auto", {"environment": {**KEY, "WANDB_MODE": "disabled"}}, "off", "WANDB_MODE"),
        ("auto", {"environment": {**KEY, "WANDB_DISABLED": "true"}}, "off", "WANDB_DISABLED"),
        ("offline", {"environment": KEY}, "offline", "as asked"),
        ("auto", {"environment": {**KEY, "WANDB_MODE": "offline"}}, "offline", "is offline"),
        ("auto", {}, "offline", "no key"),
        ("online", {}, "offline", "no key"),
        ("auto", {"environment": KEY}, "online", "WANDB_API_KEY"),
        ("online", {"environment": KEY}, "online", "WANDB_API_KEY"),
        ("auto", unreachable, "offline", "cannot be reached"),
    ]
    for wanted, options, mode, word in cases:
        decision = decide(tmp_path, wanted, **options)
        assert decision.mode == mode, (wanted, options)
        assert word in decision.sentence
        assert "x" * 40 not in decision.sentence


def test_key_is_found_in_netrc_and_settings(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    (home / ".config" / "wandb").mkdir(parents=True)
    here.mkdir()
    assert find_key({}, home, here) is None
    netrc = home / ".netrc"
    netrc.write_text("machine example.org\n  login user\n  password secret\n")
    netrc.chmod(0o600)
    assert find_key({}, home, here) is None
    netrc.write_text(f"machine {HOST}\n  login user\n  password secret\n")
    assert find_key({}, home, here) == str(netrc)
    assert find_key({"WANDB_BASE_URL": "https://wandb.example.org"}, home, here) is None
    netrc.write_text("machine\n")
    settings = home / ".config" / "wandb" / "settings"
    settings.write_text("[default]\nbase_url = https://wandb.example.org\n")
    assert find_key({}, home, here) is None
    settings.write_text("[default]\napi_key = secret\n")
    assert find_key({}, home, here) == str(settings)
    settings.write_text("no settings at all")
    assert find_key({}, home, here) is None
    other = tmp_path / "netrc"
    other.write_text(f"machine {HOST}\n  login user\n  password secret\n")
    other.chmod(0o600)
    assert find_key({"NETRC": str(other)}, home, here) == str(other)


def test_reachable_asks_the_server_and_trusts_a_proxy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reachable(f"http://127.0.0.1:{port}", {})
    assert not reachable(f"http://127.0.0.1:{port}", {}, seconds=0.5)
    assert reachable(f"http://127.0.0.1:{port}", {"HTTPS_PROXY": "http://proxy"})
    assert not reachable("http://127.0.0.1:port", {})


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    options: dict[str, Any] = {"environment": {}, "here": tmp_path, "installed": True}
    assert decide_wandb("off", **options).mode == "off"
    assert decide_wandb("auto", **options).mode == "offline"


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
    options = {"folder": tmp_path, "project": "p", "name": "n", "identity": "i", "config": {}}
    logger = open_wandb(WandbDecision(mode, "decided"), said.append, **options)
    assert attempts == tried
    assert (logger is None) == (mode == "off" or set(tried) == failing)
    assert len(said) == 1
    assert word in said[0]


def test_wandb_that_fails_to_import_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    said: list[str] = []
    options = {"folder": tmp_path, "project": "p", "name": "n", "identity": "i", "config": {}}
    assert open_wandb(WandbDecision("offline", "decided"), said.append, **options) is None
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
        def show(self, folder: Path) -> list[Media]:
            Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(folder / "a.png")
            with wave.open(str(folder / "a.wav"), "wb") as sound:
                sound.setparams((1, 2, 8000, 0, "NONE", ""))
                sound.writeframes(struct.pack("<100h", *range(100)))
            (folder / "a.mid").write_bytes(b"MThd")
            return [
                Media("picture", "grid", folder / "a.png", caption="four"),
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


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_is_on_disk_after_every_row_and_takes_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = CsvMetrics(path)
    logger.log_metrics({"a": 1.0}, 1)
    assert read(path) == [{"step": "1", "a": "1"}]
    logger.log_metrics({"b": 0.1}, 1)
    logger.log_metrics({"a": 2.0}, 2)
    assert read(path) == [
        {"step": "1", "a": "1", "b": ""},
        {"step": "1", "a": "", "b": "0.1"},
        {"step": "2", "a": "2", "b": ""},
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_csv_of_a_resumed_run_drops_later_and_broken_rows(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = CsvMetrics(path)
    for step in range(1, 5):
        logger.log_metrics({"a": step, "b": step}, step)
    with path.open("a", encoding="utf-8") as file:
        file.write("2,7")  # killed while writing
    resumed = CsvMetrics(path, keep_until=2)
    resumed.log_metrics({"c": 9.0}, 3)
    assert [(row["step"], row["a"], row["c"]) for row in read(path)] == [
        ("1", "1", ""),
        ("2", "2", ""),
        ("3", "", "9"),
    ]
    assert read(CsvMetrics(path).path) == []


def test_module_has_no_wandb_at_import() -> None:
    assert not hasattr(module, "wandb")
