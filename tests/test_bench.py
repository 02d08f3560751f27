"""`scripts/bench` runs every section and writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "scripts/bench"


@pytest.mark.slow
def test_every_section_runs(tmp_path: Path) -> None:
    command = [sys.executable, BENCH, "--tiny", "--device", "cpu", "--threads", "1"]
    done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    names = {table["key"].split("/")[0] for table in data["tables"]}
    assert names == {
        "loader", "training", "attention", "images", "decoding", "drafts", "translation",
    }  # fmt: skip
    rows = [row for table in data["tables"] for row in table["rows"]]
    measured = [row for row in rows if not row["problem"]]
    assert all(row["extra"] or row["milliseconds"] > 0 for row in measured)
    assert sum("Triptych" in row["name"] for row in measured) > 20
    page = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert "| figure | measured | goal | met |" in page
    assert all(f"### {table['title']}" in page for table in data["tables"])
