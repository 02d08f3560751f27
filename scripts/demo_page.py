"""Writes the demo's page: everything the three models made, in one file that needs no network.

    .venv/bin/python scripts/demo_page.py runs/demo

Reads what `scripts/demo` left in the folder (`<domain>.json`, `<domain>/metrics.csv`,
`translations.csv`, `pictures/`, `pieces/`, `shipped/`) and writes `index.html` into it. What is
missing is named on the page instead of shown.
"""

from __future__ import annotations

import datetime
import html
import math
import os
import platform
import sys
from pathlib import Path
from typing import Any

from demo_curve import curve, read_lines
from demo_page_parts import bars, missing, pictures, pieces, read_json, read_rows, table
from demo_page_shipped import shipped

ROWS_SHOWN = 60

# Per domain: the metric of the curve, its unit in words, the factor from training nats to it.
CURVES = {
    "translation": ("nats_per_token", "nats per target token", 1.0),
    "image": ("bits_per_dim", "bits per sub-pixel", 1 / math.log(2)),
    "music": ("nats_per_token", "nats per token", 1.0),
}


def main() -> None:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: demo_page.py FOLDER   (the folder of a demo, such as runs/demo)")
    folder = Path(sys.argv[1])
    page = folder / "index.html"
    unfinished = folder / ".index.html.unfinished"
    unfinished.write_text(build(folder), encoding="utf-8")
    unfinished.replace(page)
    print(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB, one file)", file=sys.stderr)


def build(folder: Path) -> str:
    """The whole page of a demo folder, as HTML."""
    scores = {domain: read_json(folder / f"{domain}.json") for domain in CURVES}
    style = Path(__file__).with_name("demo_page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Triptych: one core, three arts</title><style>{style}</style></head><body>",
            "<header><h1>Triptych</h1>"
            "<p class='soft'>One Transformer core and three arts on it.</p></header>",
            shipped(folder),
            "<section id='learnt'><h2>Learnt here</h2><p>Each within minutes on this machine, from "
            "nothing and from data that needed no download.</p></section>",
            headline(scores),
            translation(folder, scores["translation"]),
            image(folder, scores["image"]),
            music(folder, scores["music"]),
            footer(scores),
            "</body></html>",
        ]
    )


def headline(scores: dict[str, dict[str, Any]]) -> str:
    cells = []
    for domain, metric, unit in (
        ("translation", "exact_match", "of held-out numbers translated exactly"),
        ("image", "bits_per_dim", "bits per pixel on held-out digits"),
        ("music", "nats_per_token", "nats per token on held-out chorales"),
    ):
        value = scores[domain].get("metrics", {}).get(metric)
        shown = "&ndash;" if value is None else figure(metric, value)
        cells.append(f"<a href='#{domain}'><b>{shown}</b><span>{unit}</span></a>")
    return f"<nav class='three'>{''.join(cells)}</nav>"


def translation(folder: Path, score: dict[str, Any]) -> str:
    rows = read_rows(folder / "translations.csv")
    parts = [
        "<section id='translation'><h2>Translation</h2>",
        "<p>Numbers in words. No value of this table was in the training data, in any language; "
        "the lines are the first of the test split, not chosen.</p>",
    ]
    if rows:
        right = sum(row["match"] == "yes" for row in rows)
        parts += [
            table(rows[:ROWS_SHOWN]),
            f"<figcaption>{right} of {len(rows)} lines agree with the reference letter for letter; "
            f"{min(len(rows), ROWS_SHOWN)} are shown, all are in translations.csv.</figcaption>",
        ]
    else:
        parts.append(missing("the table of translations", folder))
    return "\n".join([*parts, *scored("translation", folder, score), "</section>"])


def image(folder: Path, score: dict[str, Any]) -> str:
    grid = folder / "pictures" / "grid.png"
    parts = [
        "<section id='image'><h2>Pictures</h2>",
        "<p>Handwritten digits of 8 by 8 pixels and 17 levels of grey, drawn one pixel at a time; "
        "each pixel is chosen knowing all before it and which digit is wanted.</p>",
    ]
    if grid.is_file():
        caption = "Samples at temperature 1, as they came; a column a digit."
        parts.append(pictures(grid, "sampled digits", caption))
    else:
        parts.append(missing("the sampled pictures", folder))
    return "\n".join([*parts, *scored("image", folder, score), "</section>"])


def music(folder: Path, score: dict[str, Any]) -> str:
    found = pieces(folder / "pieces")
    parts = [
        "<section id='music'><h2>Music</h2>",
        "<p>Chorales in four voices, learnt from Bach's: soprano, alto, tenor and bass, one "
        "sixteenth after the other.</p>",
        *(found or [missing("the sampled pieces", folder)]),
    ]
    return "\n".join([*parts, *scored("music", folder, score), "</section>"])


def scored(domain: str, folder: Path, score: dict[str, Any]) -> list[str]:
    """The score beside its baselines, the other figures, and the curve of training."""
    metric, unit, factor = CURVES[domain]
    if not score:
        return [missing(f"the score of {domain}", folder)]
    others = baselines(score["details"], metric)
    own = score["metrics"].get(metric)
    parts = []
    if own is not None:
        title = f"{unit[0].upper()}{unit[1:]} on held-out data (lower is better)"
        parts.append(f"<h3>{title}</h3>{bars({**others, 'this model': own})}")
    facts = [
        f"<span>{html.escape(name.replace('_', ' '))} <b>{figure(name, value)}</b></span>"
        for name, value in score["metrics"].items()
        if name != metric
    ]
    count, split = f"{score['count']:,}", score["split"]
    facts.append(f"<span>scored <b>{count}</b> items of the {split} split</span>")
    parts.append(f"<div class='facts'>{''.join(facts)}</div>")
    record = folder / domain / "metrics.csv"
    if record.is_file():
        found = read_lines(record, {"train/loss": factor, f"val/{metric}": 1.0})
        named = {"train/loss": "training", f"val/{metric}": "validation"}
        lines = {named[name]: line for name, line in found.items()}
        nearest = dict(sorted(others.items(), key=lambda item: item[1])[:1])
        parts.append(curve(lines, unit, nearest))
    return parts


def baselines(details: dict[str, Any], metric: str) -> dict[str, float]:
    """What `evaluate` says of simple models: `<model>_<metric>` or `<metric>_of: {model: ...}`."""
    found = {
        name.removesuffix(f"_{metric}").replace("_", " "): float(value)
        for name, value in details.items()
        if name.endswith(f"_{metric}") and isinstance(value, (int, float))
    }
    listed = details.get(f"{metric}_of") or {}
    found |= {name: float(value) for name, value in listed.items() if value is not None}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def footer(scores: dict[str, dict[str, Any]]) -> str:
    versions: dict[str, str] = {}
    for score in scores.values():
        versions |= score.get("versions", {}).get("trained_with", {})
    words = [
        f"{datetime.date.today():%d %B %Y}",
        f"{platform.machine()}, {os.cpu_count()} CPU cores, {platform.system()}",
        *(f"{name} {version}" for name, version in versions.items()),
    ]
    return f"<footer>{html.escape(' · '.join(words))}</footer>"


def figure(name: str, value: float) -> str:
    return f"{value:.1%}" if name == "exact_match" else f"{value:.3f}"


if __name__ == "__main__":
    main()
