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


def fill_shipped(folder: Path) -> None:
    """What `scripts/demo_shipped.py` leaves there, for a model of each domain."""
    files = {
        "translation": {"translations.csv": "source,translation\nA <dog>.,Ein <Hund>.\n"},
        "music": {"piece-01.mid": "tune", "piece-01.png": "roll", "piece-01.wav": "sound"},
        "image": {"grid.png": "grid"},
    }
    for domain, contents in files.items():
        (folder / "shipped" / f"a-{domain}").mkdir(parents=True)
        words = ("what", "data", "terms", "time", "hardware", "figure")
        about = {word: f"{word} & {domain}" for word in words}
        about |= {"name": f"a-{domain}", "domain": domain}
        for name, text in {"about.json": json.dumps(about), **contents}.items():
            (folder / "shipped" / f"a-{domain}" / name).write_text(text, encoding="utf-8")


def write_page(folder: Path) -> str:
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True, capture_output=True)
    return (folder / "index.html").read_bytes().decode("utf-8")


@pytest.mark.parametrize("whole", [True, False])
def test_the_page_needs_no_network_and_no_other_file(tmp_path: Path, whole: bool) -> None:
    if whole:
        fill(tmp_path)
        fill_shipped(tmp_path)
    page = Reader()
    page.feed(write_page(tmp_path))
    assert page.charset == "utf-8"
    assert {"script", "link", "iframe", "object", "embed", "base"}.isdisjoint(page.tags)
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert sum(address.startswith("data:") for address in page.addresses) == 8 * whole
    assert page.styles
    for style in page.styles:
        assert "url(" not in style
        assert "@import" not in style
    shown = "".join(page.text)
    for source, target in SENTENCES:
        assert (source in shown and target in shown) == whole


def test_what_the_shipped_models_make_comes_first(tmp_path: Path) -> None:
    fill_shipped(tmp_path)
    first = write_page(tmp_path).partition("<section id='learnt'>")[0]
    page = Reader()
    page.feed(first)
    assert {"A <dog>.", "Ein <Hund>."} <= set(page.text)
    assert "what & image" in page.text
    said = "".join(page.text)
    order = [said.index(f"pretrained:a-{domain}") for domain in ("translation", "image", "music")]
    assert order == sorted(order)
    kinds = [address.partition(";")[0] for address in page.addresses]
    assert kinds == ["data:image/png", "data:image/png", "data:audio/wav", "data:audio/midi"]
    for domain in ("translation", "image", "music"):
        assert f"terms & {domain}" in said
    assert "a step failed" not in said
