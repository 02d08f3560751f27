"""The demo: one page that needs no network, and trainings that end after their share of time."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOMAINS = ("translation", "image", "music")
SENTENCES = [("한국어 <b>", "천이백삼십사"), ("機器學習", "こんにちは"), ("Straße", "fünf")]
LOADS = {"src", "srcset", "href", "xlink:href", "poster", "data", "action", "background"}
METRICS = {"nats_per_token": 0.5, "bits_per_dim": 1.9, "exact_match": 0.96}


class Reader(HTMLParser):
    """Collects the addresses that a browser would load, the tags, the styles and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.styles: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in LOADS]
        self.styles += [value or "" for name, value in attrs if name == "style"]

    def handle_data(self, data: str) -> None:
        (self.styles if self.tags[-1:] == ["style"] else self.text).append(data)


@pytest.fixture
def write_page(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    function: Callable[..., Path] = runpy.run_path(str(ROOT / "scripts/demo_page.py"))["write_page"]
    return function


def results(folder: Path) -> dict[str, Any]:
    """What the demo hands to its page, with its media files."""
    rows = [{"source": source, "translation": text} for source, text in SENTENCES]
    shipped, trained = [], {}
    for domain in DOMAINS:
        card = {key: f"{key} & {domain}" for key in ("what", "data", "terms", "time", "hardware")}
        model = {"name": f"a-{domain}", "domain": domain, "figure": "1", **card}
        details: dict[str, Any] = {"uniform_bits_per_dim": 3.0, "nats_per_token_of": {"flat": 2.0}}
        if domain == "translation":
            model["samples"] = details["samples"] = rows
        shipped.append(model)
        score = {"metrics": METRICS, "details": details}
        trained[domain] = {"stopped": "all 5 steps", "score": score}
    for place in ("shipped/a-{}", "samples/{}"):
        image, music = (folder / place.format(domain) for domain in ("image", "music"))
        for path in (image / "grid.png", image / "sample-0000.png", music / "piece-01.mid"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"content")
        (music / "piece-01.wav").write_bytes(b"content")
    harmony = folder / "samples" / "harmony" / "piece-00.mid"
    harmony.parent.mkdir()
    harmony.write_bytes(b"content")
    return {"shipped": shipped, "trained": trained}


@pytest.mark.parametrize("whole", [True, False])
def test_the_page_needs_no_network_and_no_other_file(
    tmp_path: Path, write_page: Callable[..., Path], whole: bool
) -> None:
    found = results(tmp_path) if whole else {"shipped": [], "trained": {}}
    page = Reader()
    page.feed(write_page(tmp_path, found).read_bytes().decode("utf-8"))
    assert {"script", "link", "iframe", "object", "embed", "base"}.isdisjoint(page.tags)
    assert all(address.startswith("data:") for address in page.addresses)
    assert len(page.addresses) == 7 * whole, "two grids, two sounds, three MIDI files"
    assert page.styles
    assert not any("url(" in style or "@import" in style for style in page.styles)
    shown = "".join(page.text)
    for text in [*sum(SENTENCES, ()), "96.0%", "flat 2.000", "trained for all 5 steps"]:
        assert (text in shown) == whole
    assert ("failed" in shown) != whole
    order = [shown.index(f"pretrained:a-{domain}") for domain in DOMAINS if whole]
    assert order == sorted(order)


@pytest.mark.slow
def test_the_demo_ends_after_its_time_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [sys.executable, str(ROOT / "scripts/demo.py"), "--minutes", "0.1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    assert len(found["shipped"]) == 3
    for domain in DOMAINS:
        assert "its share of the time" in found["trained"][domain]["stopped"]
        assert found["trained"][domain]["score"]["count"] > 0
    assert (out / "samples" / "harmony" / "piece-00.mid").is_file()
    assert (out / "index.html").stat().st_size > 100_000
