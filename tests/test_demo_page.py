"""The demo's page is one file: it asks no network for anything and shows every script's letters."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "demo_page.py"
SENTENCES = [("한국어 <b>", "천이백삼십사"), ("機器學習", "こんにちは"), ("Straße", "fünf")]
LOADS = {"src", "srcset", "href", "xlink:href", "poster", "data", "action", "background"}


class Reader(HTMLParser):
    """Gathers what a browser would fetch, the tags, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.styles: list[str] = []
        self.text: list[str] = []
        self.charset = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in LOADS:
                self.addresses.append(value or "")
            elif name == "style":
                self.styles.append(value or "")
            elif name == "charset":
                self.charset = value or ""

    def handle_data(self, data: str) -> None:
        (self.styles if self.tags[-1:] == ["style"] else self.text).append(data)


def fill(folder: Path) -> None:
    """What `scripts/demo` leaves; the files' own content does not matter here."""
    figures = {"nats_per_token": 0.5, "bits_per_dim": 1.9, "exact_match": 0.96}
    for domain in ("translation", "image", "music"):
        score = {"metrics": figures, "details": {}, "count": 3, "split": "test"}
        (folder / f"{domain}.json").write_text(json.dumps(score))
        (folder / domain).mkdir()
        (folder / domain / "metrics.csv").write_text(
            "step,train/loss,val/nats_per_token,val/bits_per_dim\n1,3.0,,\n2,2.0,2.0,2.5\n"
            "3,1.5,,\n4,1.2,1.4,2.1\n"
        )
    with (folder / "translations.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "reference", "translation", "match"])
        writer.writerows([source, target, target, "yes"] for source, target in SENTENCES)
    for name in ("pictures/grid.png", "pieces/1.mid", "pieces/1.png", "pieces/1.wav"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"content")


@pytest.mark.parametrize("whole", [True, False])
def test_the_page_needs_no_network_and_no_other_file(tmp_path: Path, whole: bool) -> None:
    if whole:
        fill(tmp_path)
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=True, capture_output=True)
    page = Reader()
    page.feed((tmp_path / "index.html").read_bytes().decode("utf-8"))
    assert page.charset == "utf-8"
    assert {"script", "link", "iframe", "object", "embed", "base"}.isdisjoint(page.tags)
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert sum(address.startswith("data:") for address in page.addresses) == 4 * whole
    assert page.styles
    for style in page.styles:
        assert "url(" not in style
        assert "@import" not in style
    shown = "".join(page.text)
    for source, target in SENTENCES:
        assert (source in shown and target in shown) == whole
