"""What is set before torch is imported, unless the user has set it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from triptych import before_torch
from triptych.cli import main as cli

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "THP_MEM_ALLOC_ENABLE")
PAGES = Path("/sys/kernel/mm/transparent_hugepage")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what is set here is taken back
        monkeypatch.delenv(name)
    return monkeypatch


def test_the_command_line_sets_it(environment: pytest.MonkeyPatch) -> None:
    assert cli.main(["--version"]) == 0
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert int(os.environ["GOMP_SPINCOUNT"]) > 0
    assert os.environ.get("THP_MEM_ALLOC_ENABLE") == ("1" if PAGES.exists() else None)


def test_what_the_user_set_stays(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OMP_WAIT_POLICY", "ACTIVE")
    environment.setenv("THP_MEM_ALLOC_ENABLE", "0")
    before_torch.prepare()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "GOMP_SPINCOUNT" not in os.environ
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == "0"


LARGE_PAGES = """
from triptych import before_torch
before_torch.prepare()
import torch
kept = torch.ones(2**24)
address = kept.data_ptr() + kept.nbytes // 2
for line in open("/proc/self/smaps"):
    first = line.split()[0]
    if "-" in first and not first.endswith(":"):
        start, end = (int(part, 16) for part in first.split("-"))
    elif line.startswith("VmFlags:") and start <= address < end:
        print("hg" in line.split())
"""


@pytest.mark.skipif(
    not PAGES.exists() or platform.machine() != "x86_64",
    reason="this system has no large pages, or torch does not ask for them here",
)
def test_large_tensors_ask_for_large_pages(environment: pytest.MonkeyPatch) -> None:
    for value, asked in (("0", "False"), ("1", "True")):
        environment.setenv("THP_MEM_ALLOC_ENABLE", value)
        done = subprocess.run(
            [sys.executable, "-c", LARGE_PAGES], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == asked
