"""`triptych play`: mistakes end in a sentence before a model is read."""

from __future__ import annotations

import socket
import sys
from types import ModuleType

import pytest


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--prot", "8000"], ["--prot", "did you mean --port?"]),
        (["--port", "0"], ["port must be", "at least 1"]),
        (["--checkpoint", "nowhere.ckpt"], ["nowhere.ckpt"]),
        (["--checkpoint", "pretrained:mnist", "--checkpoint", "pretrained:minst"], ["mnist"]),
        (["--checkpoint", "pretrained:mnist", "pretrained:minst"], ["mnist"]),
        (["--device", "tpu"], ["tpu"]),
    ],
    ids=str,
)
def test_mistakes_are_refused(
    refused, monkeypatch: pytest.MonkeyPatch, options: list[str], says: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", ModuleType("gradio"))
    refused("play", *options, says=says)


def test_without_gradio_it_says_what_to_install(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    refused("play", says=["play needs gradio", "pip install 'triptych[play]'"])


def test_a_port_in_use_is_refused(cli) -> None:
    pytest.importorskip("gradio", reason="gradio is not installed (extra play)")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        command = ["play", "--checkpoint", "pretrained:mnist", "--port", port]
        answer = cli(*command)
        assert answer.code == 2
        assert f"triptych: port {port} cannot be used" in answer.err
