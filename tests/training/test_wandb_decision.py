"""Weights & Biases is decided before it is asked for anything, with a reason."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from triptych.training.loggers.wandb import WandbDecision, decide_wandb, find_key, reachable

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
