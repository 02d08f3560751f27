"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported; no spinning at all

import pytest
import torch

SHARED_DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; tests that need it skip where it is not."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared data sets are not beside this checkout")
    return SHARED_DATA.resolve()


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
