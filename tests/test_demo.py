"""The demo: one page of its results, and trainings that end after their share of time."""

from __future__ import annotations

import html
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import written_runs

from triptych import pretrained

ROOT = Path(__file__).parents[1]
DOMAINS = ("translation", "image", "music")
SENTENCES = [("한국어 <b>", "천이백삼십사"), ("機器學習", "こんにちは"), ("Straße", "fünf")]
METRICS = {"nats_per_token": 0.5, "bits_per_dim": 1.9, "exact_match": 0.96}


@pytest.fixture
def write_page(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    function: Callable[..., Path] = runpy.run_path(str(ROOT / "scripts/demo.py"))["write_page"]
    return function


def results(folder: Path) -> dict[str, Any]:
    """What the demo hands to its page, with its media files and one run."""
    rows = [{"source": source, "translation": text} for source, text in SENTENCES]
    shipped, trained = [], {}
    for domain in reversed(DOMAINS):
        card = {key: f"{key} & {domain}" for key in ("what", "data", "terms", "time", "hardware")}
        model = {"name": f"a-{domain}", "domain": domain, "figure": "1", **card}
        details: dict[str, Any] = {"uniform_bits_per_dim": 3.0, "nats_per_token_of": {"flat": 2.0}}
        if domain == "translation":
            model["samples"] = details["samples"] = rows
        shipped.append(model)
        score = {"metrics": METRICS, "details": details}
        trained[domain] = {"stopped": "all 5 steps", "score": score}
    for place in ("shipped/a-{}", "samples/{}"):
        written_runs.write_png(folder / place.format("image") / "grid.png")
        written_runs.write_midi(folder / place.format("music") / "piece-01.mid", [(0, 1, 60)])
    written_runs.write_midi(folder / "samples/harmony/piece-00.mid", [(0, 1, 60)])
    written_runs.write_run(folder, "image")
    return {"shipped": shipped, "trained": trained}


@pytest.mark.parametrize("whole", [True, False])
def test_the_page_shows_the_results_or_that_they_are_missing(
    tmp_path: Path, write_page: Callable[..., Path], whole: bool
) -> None:
    found = results(tmp_path) if whole else {"shipped": [], "trained": {}}
    page = html.unescape(write_page(tmp_path, found).read_text(encoding="utf-8"))
    for text in [*sum(SENTENCES, ()), "96.0%", "flat 2.000", "Trained for all 5 steps."]:
        assert (text in page) == whole
    assert page.count('class="play"') == (3 + 2) * whole, "three pieces, two of the run"
    assert ("training or evaluation failed" in page) != whole
    shown = ("image", "music", "translation")  # pictures and pieces before tables
    order = [page.index(f"pretrained:a-{domain}") for domain in shown if whole]
    assert order == sorted(order)


@pytest.mark.slow
def test_the_demo_ends_after_its_time_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [sys.executable, str(ROOT / "scripts/demo.py"), "--minutes", "0.1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    assert len(found["shipped"]) == len(pretrained.names())
    for domain in DOMAINS:
        assert "steps, which fit into" in found["trained"][domain]["stopped"]
        assert found["trained"][domain]["score"]["count"] > 0
    assert (out / "samples" / "harmony" / "piece-00.mid").is_file()
    assert (out / "index.html").stat().st_size > 100_000
