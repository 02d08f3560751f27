"""scripts/length_plot draws a curve a file, small enough for a README."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/length_plot"


def curve(path: Path, *, length: int = 1024, beyond: float = 0.4) -> Path:
    buckets = [
        {
            "first": first,
            "last": first + 31,
            "tokens": 320,
            "nats_per_token": 0.4 + 1 / (first + 8) + (beyond if first >= 512 else 0),
        }
        for first in range(0, length, 32)
    ]
    metrics = {"nats_per_token_within": 0.4, "nats_per_token_beyond": 0.4 + beyond}
    content = {"trained_length": 512, "length": length, "buckets": buckets, "metrics": metrics}
    path.write_text(json.dumps(content))
    return path


def plot(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_curves_become_a_small_image(tmp_path: Path) -> None:
    one, two = curve(tmp_path / "a.json", beyond=0.01), curve(tmp_path / "b.json")
    out = tmp_path / "new/length.png"
    done = plot(f"relative={one}", two, "--out", out, "--title", "JSB chorales")
    assert done.returncode == 0, done.stderr
    with Image.open(out) as image:
        assert (image.format, image.size) == ("PNG", (800, 400))
    assert out.stat().st_size < 60_000
    done = plot(one, "--out", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"--out {tmp_path} cannot be written" in done.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        ("[]", "is not of `triptych evaluate music --by_position`"),
        ('{"buckets": [], "trained_length": 8}', "holds no scored position"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    done = plot(f"x={path}", "--out", tmp_path / "x.png")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.png").exists()
