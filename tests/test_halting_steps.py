"""scripts/halting_steps draws the steps of each piece of the sentences of attention.json."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from PIL import Image

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/halting_steps"


def test_steps_are_drawn_for_models_that_halt(tmp_path: Path) -> None:
    sides = {"source_pieces": ["one", "two"], "target_pieces": ["ein"]}
    halted = {"drawing": "sentence-001.png", **sides, "source_steps": [1.0, 2.5]}
    halted["target_steps"] = [3.0]
    for number, steps in enumerate((halted, {**halted, "source_steps": None})):
        (tmp_path / f"{number}.json").write_text(json.dumps([halted, steps]))
        command = [sys.executable, str(SCRIPT), f"{tmp_path}/{number}.json", "--out", "drawn"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "has no steps" in done.stderr) == ((0, False), (2, True))[number]
    drawings = sorted((tmp_path / "drawn").iterdir())
    assert [path.name for path in drawings] == ["sentence-001.png", "steps.png"]
    assert all(Image.open(path).format == "PNG" for path in drawings)
