"""The first section of the demo's page: what the models that come with Triptych make."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from demo_page_parts import missing, pictures, pieces, read_json, read_rows, table

ORDER = ("translation", "image", "music")


def shipped(folder: Path) -> str:
    """The section; `folder` is that of the demo, and `scripts/demo_shipped.py` filled a part."""
    abouts = [read_json(path) for path in sorted((folder / "shipped").glob("*/about.json"))]
    parts = [
        "<section id='shipped'><h2>Before any training</h2>",
        "<p>Made just now, in seconds, by the small models that come with Triptych; <code>triptych "
        "pretrained</code> lists them. Pictures and pieces are shown as they came.</p>",
    ]
    for about in sorted(abouts, key=lambda about: ORDER.index(about["domain"])):
        parts += model(folder / "shipped" / about["name"], about)
    if not abouts:
        parts.append(missing("what the shipped models make", folder))
    return "\n".join([*parts, "</section>"])


def model(folder: Path, about: dict[str, Any]) -> list[str]:
    """What one model made, and what must be known of it."""
    parts = [f"<h3>{html.escape(about['what'])}</h3>"]
    if rows := read_rows(folder / "translations.csv"):
        said = "The last sentence describes no picture; beyond captions the model is lost."
        parts.append(f"{table(rows)}<figcaption>{said}</figcaption>")
    if (grid := folder / "grid.png").is_file():
        parts.append(pictures(grid, "sampled pictures", "Samples at temperature 1, as they came."))
    parts += pieces(folder)
    facts = {key: about[key] for key in ("data", "time", "hardware", "figure", "terms")}
    lines = [f"<b>{key}</b> {html.escape(text)}" for key, text in facts.items()]
    name = f"pretrained:{html.escape(about['name'])}"
    return [*parts, f"<p class='about'><code>{name}</code> &middot; {' &middot; '.join(lines)}</p>"]
