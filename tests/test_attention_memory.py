"""scripts/attention_memory measures the memory of a training step and draws it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/attention_memory"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads /proc of Linux")
def test_weights_that_are_kept_take_more_memory_than_compressed_keys(tmp_path: Path) -> None:
    out = tmp_path / "memory.png"
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--lengths", "64", "2048"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    kept, fused, compressed = (float(cell) for cell in lines[2].split("|")[2:5])
    # Two layers with two heads keep at least their weights, 2048 x 2048 numbers each.
    assert kept > 4 * 2048**2 * 4 / 2**20
    assert compressed < kept / 2
    assert fused < kept / 2
    assert Image.open(out).size == (800, 450)
