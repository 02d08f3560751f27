"""Waiting threads spin for a short time, unless the environment says how they wait."""

from __future__ import annotations

import os

import pytest

from triptych import cli, threads


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that what is set here is taken back
        monkeypatch.delenv(name)
    return monkeypatch


def test_the_command_line_sets_it(environment: pytest.MonkeyPatch) -> None:
    assert cli.main(["--version"]) == 0
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert int(os.environ["GOMP_SPINCOUNT"]) > 0


def test_what_the_user_set_stays(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OMP_WAIT_POLICY", "ACTIVE")
    threads.wait_in_short()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "GOMP_SPINCOUNT" not in os.environ
