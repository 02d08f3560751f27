"""Weights & Biases never stops the training, and says in one sentence what it does."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_task import ToyTask, toy_run

from triptych.training import wandb_logger as module
from triptych.training.run import trainer as trainer_module
from triptych.training.run.settings import LogConfig, RunConfig
from triptych.training.wandb_logger import WandbMetrics, choose_mode, open_wandb


class FakeRun:
    """A wandb run that remembers, or fails."""

    id = "abc"

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.logged: list[dict[str, Any]] = []
        self.exit_code: int | None = None
        self.written: list[str] = []

    def log(self, figures: dict[str, Any]) -> None:
        if self.fails:
            raise ConnectionError("gone")
        self.logged.append(figures)

    def define_metric(self, *_: Any, **__: Any) -> None:
        pass

    def write_logs(self, text: str) -> None:
        assert self.exit_code is None, "wandb ignores what comes later"
        self.written.append(text)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sentences: list[str] = []
    monkeypatch.setattr(module, "say", sentences.append)
    return sentences


def fake_wandb(monkeypatch: pytest.MonkeyPatch, mode: str, failing: set[str]) -> list[str]:
    tried: list[str] = []

    def init(*, mode: str, **_: Any) -> FakeRun:
        tried.append(mode)
        if mode in failing:
            raise RuntimeError("planted\nsecond line")
        return FakeRun()

    def teardown() -> None:
        tried.append("teardown")

    fake = SimpleNamespace(init=init, teardown=teardown, Settings=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(module, "choose_mode", lambda _: (mode, "decided"))
    return tried


@pytest.mark.parametrize(
    ("mode", "failing", "tried", "word"),
    [
        ("off", set(), [], "is off (decided)"),
        ("online", set(), ["online"], "logs online (decided)."),
        ("offline", set(), ["offline"], "logs offline (decided); `wandb sync`"),
        (
            "online",
            {"online"},
            ["online", "teardown", "offline"],
            "logs offline (online failed, RuntimeError: planted); `wandb sync`",
        ),
        (
            "online",
            {"online", "offline"},
            ["online", "teardown", "offline"],
            "is off (it failed, RuntimeError: planted)",
        ),
        ("offline", {"offline"}, ["offline"], "is off (it failed, RuntimeError: planted)"),
    ],
)
def test_failing_start_falls_back_with_one_sentence(
    mode: str,
    failing: set[str],
    tried: list[str],
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
) -> None:
    attempts = fake_wandb(monkeypatch, mode, failing)
    logger = open_wandb(RunConfig(), folder=tmp_path, identity="i", config={})
    assert attempts == tried
    assert (logger is None) == ("is off" in word)
    assert len(said) == 1
    assert word in said[0]


@pytest.mark.usefixtures("home")
def test_names_are_settings_or_variables_of_wandb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w").mkdir()
    variables = {"NAME": "n", "DIR": str(tmp_path / "w"), "RUN_GROUP": "g", "TAGS": "t,u"}
    for name, value in {**variables, "PROJECT": "p", "JOB_TYPE": "j", "NOTES": "o"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)

    def opened(**names: Any) -> dict[str, Any]:
        run = RunConfig(wandb="offline", log=LogConfig(wandb_init=names))
        logger = open_wandb(run, folder=tmp_path, identity="i", config={})
        assert logger is not None
        seen = {name: getattr(logger.target, name) for name in ("name", "group", "project")}
        seen |= {name: getattr(logger.target, name) for name in ("tags", "notes", "job_type")}
        logger.close(succeeded=True)
        return seen | {"folder": Path(logger.target.dir).parents[2]}

    expected = {"name": "n", "group": "g", "project": "p", "tags": ("t", "u"), "job_type": "j"}
    assert opened() == {**expected, "notes": "o", "folder": tmp_path / "w"}
    own = {"name": "N", "group": "G", "project": "P", "tags": ["T"], "job_type": "J", "notes": "O"}
    assert opened(**own) == {**own, "tags": ("T",), "folder": tmp_path / "w"}


def test_wandb_that_fails_to_import_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert open_wandb(RunConfig(), folder=tmp_path, identity="i", config={}) is None
    assert "is off (it failed" in said[0]


def test_failure_in_the_middle_is_told_once(said: list[str]) -> None:
    logger = WandbMetrics(FakeRun(fails=True))
    logger.log_metrics({"a": 1.0}, 1)
    logger.log_metrics({"a": 1.0}, 2)
    logger.log_files([Path("a.png")], 2)
    logger.finalize("success")
    assert len(said) == 1
    assert "the training goes on" in said[0]


def test_run_is_closed_with_its_status() -> None:
    run = FakeRun()
    logger = WandbMetrics(run)
    logger.log_metrics({"a": 1.0}, 7)
    assert run.logged == [{"a": 1.0, "step": 7}]
    logger.finalize("failed")
    logger.finalize("success")
    assert run.exit_code == 1


class Failing(ToyTask):
    def score(self, batch: Any) -> Any:
        raise ZeroDivisionError("planted")


@pytest.mark.parametrize(("task", "exit_code"), [(ToyTask, 0), (Failing, 1)])
def test_training_closes_the_run_with_its_status(
    task: type[ToyTask], exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun()
    monkeypatch.setattr(trainer_module, "open_wandb", lambda *_, **__: WandbMetrics(run))
    settings = {"wandb": "auto", "log": LogConfig(samples=False)}
    with pytest.raises(ZeroDivisionError) if exit_code else contextlib.nullcontext():
        toy_run(tmp_path / "toy", task(), run=settings, max_steps=2, val_check_interval=2)
    assert run.exit_code == exit_code
    assert run.written == ["ZeroDivisionError: planted"] * exit_code


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A home folder without a key, for wandb itself."""
    import wandb

    for name in ("WANDB_IDENTITY_TOKEN_FILE", "WANDB_CONFIG_DIR", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    wandb.teardown()
    yield home
    wandb.teardown()


KEY = {"WANDB_API_KEY": "x" * 40}


@pytest.mark.parametrize(
    ("wanted", "environment", "mode", "word"),
    [
        ("off", KEY, "off", "--run.wandb off"),
        ("auto", {**KEY, "WANDB_MODE": "disabled"}, "off", "WANDB_MODE"),
        ("auto", {**KEY, "WANDB_DISABLED": "true"}, "off", "WANDB_DISABLED"),
        ("offline", KEY, "offline", "as asked"),
        ("auto", {**KEY, "WANDB_MODE": "offline"}, "offline", "is offline"),
        ("auto", {}, "offline", "no key"),
        ("online", {}, "offline", "no key"),
        ("auto", KEY, "online", "a key"),
        ("online", KEY, "online", "a key"),
    ],
)
@pytest.mark.usefixtures("home")
def test_every_branch_of_the_mode(
    wanted: str, environment: dict[str, str], mode: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    chosen, reason = choose_mode(wanted)
    assert chosen == mode
    assert word in reason


def test_key_is_found_in_netrc_and_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    host = "wandb.example.org"
    monkeypatch.setenv("WANDB_BASE_URL", f"https://{host}")
    netrc = home / ".netrc"
    netrc.write_text("machine other.example.org\n  login user\n  password secret\n")
    netrc.chmod(0o600)
    assert choose_mode("auto")[0] == "offline"
    netrc.write_text(f"machine {host}\n  login user\n  password secret\n")
    assert choose_mode("auto")[0] == "online"
    netrc.unlink()
    assert choose_mode("auto")[0] == "offline"
    settings = home / ".config" / "wandb" / "settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[default]\napi_key = {'x' * 40}\n")
    wandb.teardown()
    assert choose_mode("auto")[0] == "online"


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_no_server_means_offline_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(module, "_SETTINGS", {**module._SETTINGS, "init_timeout": 2.0})
    began = time.monotonic()
    logger = open_wandb(RunConfig(), folder=tmp_path, identity="i", config={})
    assert time.monotonic() - began < 30
    assert logger is not None
    logger.log_metrics({"a": 1.0}, 1)
    logger.finalize("success")
    assert len(said) == 1
    assert "logs offline (online failed" in said[0]
