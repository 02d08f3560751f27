"""One HTML page of the demo's results, with all images and sounds inside: it needs no network."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

from triptych.training.files import write_atomically

ORDER = ("translation", "image", "music")
METRIC = {
    "translation": ("exact_match", "numbers translated exactly"),
    "image": ("bits_per_dim", "bits per pixel of test digits"),
    "music": ("nats_per_token", "nats per token of test chorales"),
}
DATA = {
    "translation": "Numbers in words. No value of the table was in the training data.",
    "image": "Handwritten digits, 8x8 with 17 levels, in generation order; one column per digit.",
    "music": "Chorales in four voices, in sixteenths.",
}
GIVEN = {
    "image": {
        "completion": "Test digits, their given upper halves, and five completions each.",
        "super-resolution": "Test digits averaged down to 4x4, five samples each, and the "
        "originals.",
    },
    "music": {
        "harmony": "The first bars of the soprano of a test chorale (dark), and the three other "
        "voices as the model fills them in.",
    },
}
"""Domain -> folder of samples of which a part was given -> what they show."""
CARD = ("data", "time", "hardware", "figure", "terms")
KINDS = {".png": "image/png", ".wav": "audio/wav", ".mid": "audio/midi"}
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
td, th { text-align: left; padding: .2rem 1rem .2rem 0; overflow-wrap: anywhere; }
img, audio { display: block; max-width: 100%; margin: .5rem 0; } small { opacity: .7; }
"""


def write_page(folder: Path, results: dict[str, Any]) -> Path:
    """Write index.html into the demo's folder and return its path.

    results: `shipped`, a list of models with their card, and `trained`, by domain.
    """
    parts = ["<h1>Triptych</h1>", "<h2>Shipped models</h2>"]
    for model in sorted(results["shipped"], key=lambda model: ORDER.index(model["domain"])):
        parts += [f"<h3>{escape(model['what'])}</h3>", table(model.get("samples", []))]
        parts += media(folder / "shipped" / model["name"])
        card = "; ".join(f"{key}: {model[key]}" for key in CARD)
        parts.append(f"<p><small>pretrained:{escape(model['name'])}; {escape(card)}</small></p>")
    parts.append("<h2>Trained here</h2>")
    for domain in ORDER:
        parts += [f"<h3>{domain.capitalize()}</h3>", f"<p>{DATA[domain]}</p>"]
        trained = results["trained"].get(domain, {})
        if "score" not in trained:
            parts.append("<p>Training or evaluation failed; see the output of the demo.</p>")
        else:
            name, unit = METRIC[domain]
            value = trained["score"]["metrics"][name]
            shown = f"{value:.1%}" if name == "exact_match" else f"{value:.3f}"
            baselines = "".join(
                f"; {escape(other)} {figure:.3f}" for other, figure in simple(trained, name).items()
            )
            parts.append(
                f"<p><b>{shown}</b> {unit}{baselines}<br>trained for {trained['stopped']}</p>"
            )
            parts.append(table(trained["score"]["details"].get("samples", [])))
        parts += media(folder / "samples" / domain)
        for name, text in GIVEN.get(domain, {}).items():
            if files := media(folder / "samples" / name):
                parts += [f"<p>{text}</p>", *files]
    page = "\n".join(part for part in parts if part)
    return write_atomically(
        folder / "index.html",
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Triptych</title>'
        f"<style>{STYLE}</style></head><body>{page}</body></html>".encode(),
    )


def simple(trained: dict[str, Any], metric: str) -> dict[str, float]:
    """Return the scores of simple models: details NAME_METRIC or METRIC_of: {NAME: score}."""
    details = trained["score"]["details"]
    found = {
        key.removesuffix(f"_{metric}"): value
        for key, value in details.items()
        if key.endswith(f"_{metric}") and value is not None
    }
    return found | (details.get(f"{metric}_of") or {})


def table(rows: list[dict[str, str]]) -> str:
    """Return a table with one column per key."""
    if not rows:
        return ""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in line) for line in lines)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in cells)}</table>"


def media(folder: Path) -> list[str]:
    """Return the grid of images, or the piano rolls, sounds and MIDI files of a folder."""
    names = [folder / "grid.png"] if (folder / "grid.png").is_file() else sorted(folder.glob("*"))
    shown = []
    for path in names:
        uri = f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
        if path.suffix == ".png":
            shown.append(f'<img alt="{path.stem}" src="{uri}">')
        elif path.suffix == ".wav":
            shown.append(f'<audio controls src="{uri}"></audio>')
        else:
            shown.append(f'<p><a download="{path.name}" href="{uri}">{path.name}</a></p>')
    return shown


def escape(text: str) -> str:
    return html.escape(str(text))
