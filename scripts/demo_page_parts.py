"""Pieces of HTML that the sections of the demo's page share, and how its files are read."""

from __future__ import annotations

import base64
import csv
import html
import json
from pathlib import Path
from typing import Any


def table(rows: list[dict[str, str]]) -> str:
    """Source and translation, and where a row has them, a tick or what was expected."""
    last = "<th></th>" if "match" in rows[0] else ""
    return (
        f"<div class='scroll'><table><thead><tr><th>source</th><th>translation</th>{last}</tr>"
        f"</thead><tbody>{''.join(map(table_row, rows))}</tbody></table></div>"
    )


def table_row(row: dict[str, str]) -> str:
    wanted, mark = "", ""
    if row.get("match") == "yes":
        mark = "<td class='mark yes'>&#10003;</td>"
    elif "match" in row:
        mark = "<td class='mark no'>&#10007;</td>"
        wanted = f"<span class='wanted'>expected: {html.escape(row['reference'])}</span>"
    return (
        f"<tr><td>{html.escape(row['source'])}</td>"
        f"<td>{html.escape(row['translation'])}{wanted}</td>{mark}</tr>"
    )


def pictures(grid: Path, what: str, caption: str) -> str:
    """A grid of samples as a figure."""
    return (
        f"<figure><img class='grid' alt='grid of {what}' src='{data_uri(grid)}'>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def pieces(folder: Path) -> list[str]:
    """Every piece of a folder, see `piece`."""
    paths = sorted(folder.glob("*.mid"))
    return [piece(path, f"Piece {number}") for number, path in enumerate(paths, start=1)]


def piece(path: Path, title: str) -> str:
    """A MIDI file to take along, with its piano roll and its sound where they lie beside it."""
    roll, sound = path.with_suffix(".png"), path.with_suffix(".wav")
    parts = [f"<figure><h3>{title}</h3>"]
    if roll.is_file():
        parts.append(f"<img class='roll' alt='piano roll of {title}' src='{data_uri(roll)}'>")
    if sound.is_file():
        parts.append(f"<audio controls preload='metadata' src='{data_uri(sound)}'></audio>")
    parts.append(
        f"<figcaption><a download='{path.name}' href='{data_uri(path)}'>{path.name}</a>"
        "</figcaption></figure>"
    )
    return "\n".join(parts)


def bars(values: dict[str, float]) -> str:
    """One horizontal bar a model, as long as its value."""
    longest = max(values.values())
    cells = []
    for name, value in values.items():
        own = " own" if name == "this model" else ""
        width = 100 * value / longest if longest > 0 else 0
        cells.append(
            f"<span class='{own}'>{html.escape(name)}</span>"
            f"<span><div class='bar{own}' style='width:{width:.1f}%'></div></span>"
            f"<span class='value{own}'>{value:.3f}</span>"
        )
    return f"<div class='bars'>{''.join(cells)}</div>"


def missing(what: str, folder: Path) -> str:
    logs = html.escape(str(folder / "logs"))
    return f"<p class='missing'>Here should be {what}: a step failed, see {logs}.</p>"


def data_uri(path: Path) -> str:
    kinds = {".png": "image/png", ".wav": "audio/wav", ".mid": "audio/midi"}
    return f"data:{kinds[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
