"""Fixtures of the training tests; the toy task beside this file is importable as `toy_task`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Precision auto is 32-true on every machine."""
    monkeypatch.setattr("triptych.training.engine.devices.cpu_has_bf16", lambda: False)


@pytest.fixture(autouse=True)
def _no_wandb_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DISABLED", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
