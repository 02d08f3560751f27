"""Fixtures that every test may use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported; no spinning at all

import pytest
import torch

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--no-first-run", "--disable-quic"]  # fmt: skip
SHARED_DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; tests that need it skip where it is not."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared data sets are not beside this checkout")
    return SHARED_DATA.resolve()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, headless; tests that need it skip where it or playwright is not."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (extra browser)"
    )
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium on PATH or in $CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
