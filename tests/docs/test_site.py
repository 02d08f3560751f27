"""The built site: no warning, nothing from the network, readable in a browser."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from site_hooks import ROOT

pytest.importorskip("mkdocs", reason="mkdocs is not installed (extra docs)")
pytestmark = pytest.mark.slow
VISITED = ["index", "tour", "learn/blocks", "learn/outputs", "notebooks/image", "reference/core"]


class Loaded(HTMLParser):
    """Addresses that a page loads by itself: not those of links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        names = ["src", "data", "poster"] + ["href"] * (
            tag == "link" and found["rel"] != "canonical"
        )
        self.addresses += [found[name] or "" for name in names if name in found]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--config-file", ROOT / "docs/site/mkdocs.yml"]
    done = subprocess.run(
        [sys.executable, *command, "--site-dir", folder],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr, done.stderr[-3000:]
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = Loaded(page.read_text(encoding="utf-8")).addresses
        assert any(address.endswith(".css") for address in loaded)
        outside = [address for address in loaded if "//" in address and address[:5] != "data:"]
        assert outside == [], page.name


def test_formulas_are_mathml_and_code_is_included(site: Path) -> None:
    for page in (site / "learn").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'class="arithmatex"' not in text, page.name
        # The converter writes commands that it does not know as identifiers.
        assert "<mi>\\" not in text, page.name
        assert "<mi>&<" not in text, page.name
        if page.stem not in ("index", "cost"):
            assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"' in text
    text = (site / "learn/blocks.html").read_text(encoding="utf-8")
    assert "src/triptych/core/layers.py: Residual" in text


@pytest.mark.parametrize("width", [400, 1300])
@pytest.mark.parametrize("name", VISITED)
def test_a_page_in_a_browser(site: Path, browser: Any, name: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / f"{name}.html").as_uri())
    page.wait_for_load_state()
    missing = page.evaluate("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") <= 0
    assert (errors, missing) == ([], [])
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    page.close()
